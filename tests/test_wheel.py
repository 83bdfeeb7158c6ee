"""Wheel: what is due is called once, in time, whatever becomes of what else is due."""

import asyncio
from collections.abc import Callable
from time import monotonic

import pytest

from aiolock._wheel import Wheel
from tests.support.observe import until

GRAIN = 0.01


class Calls:
    """A wheel that notes what it calls, and when."""

    def __init__(self) -> None:
        self.seen: dict[str, float] = {}
        self.turns = 0
        self.then: Callable[[str], object] = lambda item: None
        self.wheel: Wheel[str] = Wheel(self._due, GRAIN)

    def _due(self, items: list[str]) -> None:
        self.turns += 1
        while items:
            item = items.pop()
            assert item not in self.seen
            self.seen[item] = monotonic()
            self.then(item)


@pytest.fixture
async def calls() -> Calls:
    return Calls()


async def test_each_item_is_called_when_it_is_due_and_hardly_later(calls: Calls) -> None:
    due = {name: monotonic() + number * GRAIN / 3 for number, name in enumerate("abcdefghi")}
    for name, when in due.items():
        calls.wheel.add(name, when)
    await until(lambda: len(calls.seen) == len(due))
    rounding = 0.002  # uvloop counts milliseconds, and may be that much early.
    assert all(calls.seen[name] >= when - rounding for name, when in due.items())


async def test_what_was_due_long_ago_is_called_at_once(calls: Calls) -> None:
    calls.wheel.add("a", monotonic() - 1000)
    await until(lambda: "a" in calls.seen, within=1)


async def test_what_was_removed_is_not_called(calls: Calls) -> None:
    when = monotonic() + GRAIN
    slots = {name: calls.wheel.add(name, when) for name in "abc"}
    calls.wheel.remove("b", slots["b"])
    await until(lambda: len(calls.seen) == 2)
    assert set(calls.seen) == {"a", "c"}


async def test_an_item_may_come_again(calls: Calls) -> None:
    slot = calls.wheel.add("a", monotonic() + 1000)
    calls.wheel.remove("a", slot)
    calls.wheel.add("a", monotonic())
    await until(lambda: "a" in calls.seen)


async def test_what_is_due_together_is_called_together_and_cannot_be_removed_any_more(calls: Calls) -> None:
    when = monotonic() + GRAIN
    slots = {name: calls.wheel.add(name, when) for name in "ab"}
    assert slots["a"] == slots["b"]

    def remove_the_other(item: str) -> None:
        other = "ab".replace(item, "")
        calls.wheel.remove(other, slots[other])

    calls.then = remove_the_other
    await until(lambda: len(calls.seen) == 2)
    assert calls.turns == 1


async def test_one_that_fails_takes_no_other_along(calls: Calls) -> None:
    failures: list[BaseException] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: failures.append(context["exception"]))

    def fail(item: str) -> None:
        raise ZeroDivisionError(item)

    calls.then = fail
    when = monotonic() + GRAIN
    for name in "abc":
        calls.wheel.add(name, when)
    await until(lambda: len(calls.seen) == 3)
    assert [type(failure) for failure in failures] == [ZeroDivisionError] * 3


async def test_items_that_come_and_go_keep_one_timer_at_most(calls: Calls) -> None:
    for number in range(100):
        calls.wheel.remove("a", calls.wheel.add("a", monotonic() + 1000 + number))
        assert len(calls.wheel._slots) == 1, "each slot has a timer"
    calls.wheel.tidy()
    assert not calls.wheel._slots
