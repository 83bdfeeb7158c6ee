"""What a function does without its lock: while Redis fails (`on_unavailable`), and while the lock is busy (`busy`)."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Any

import pytest
from redis.asyncio import Redis

from aiolock import (
    BackendError,
    Bypassed,
    LeaseLostError,
    LockClient,
    LockConfig,
    LockEvent,
    LockTimeoutError,
    NotAcquired,
    ReplicationError,
)
from aiolock.testing import failing_commands, lose
from tests.support.cancellation import MODES, Mode, Outcome, every_suspension
from tests.support.holding import client_behind
from tests.support.makers import MAKERS
from tests.support.observe import answered, until
from tests.support.proxy import Proxy

Events = list[LockEvent]


@pytest.fixture
def events() -> Events:
    return []


@pytest.fixture
async def heard(redis: Redis, events: Events) -> AsyncIterator[LockClient]:
    async with LockClient(redis, config=LockConfig(on_event=events.append)) as locks:
        yield locks


def bypassed(events: Events) -> list[str]:
    return [event.name for event in events if isinstance(event, Bypassed)]


# While Redis fails.


async def test_by_default_nothing_runs_without_its_lock(heard: LockClient, events: Events) -> None:
    @heard.synchronized("order")
    async def ship() -> None:
        raise AssertionError("must not run")

    with failing_commands(heard, None):
        with pytest.raises(BackendError):
            await ship()
        with pytest.raises(BackendError):
            await heard.once("invoice", keep=60).run(ship)
    assert not bypassed(events)


@pytest.mark.parametrize("kind", ["lock", *MAKERS])
async def test_a_function_runs_without_its_lock_and_everybody_can_see_that(
    kind: str, heard: LockClient, events: Events, caplog: pytest.LogCaptureFixture
) -> None:
    of = None if kind == "lock" else MAKERS[kind][0]

    @heard.synchronized("order:{number}", of=of, on_unavailable="run")
    async def ship(number: int) -> int:
        return number

    with failing_commands(heard, None):
        assert [await ship(7), await ship(8)] == [7, 8]
    names = bypassed(events)
    assert set(names) >= {"order:7", "order:8"}
    assert len(names) == (4 if kind == "multi" else 2)
    assert {event.trouble for event in events if isinstance(event, Bypassed)} == {
        f"acquire of '{name}' failed: a test made it fail" for name in ("order:7", "order:8")
    }
    # Without Redis each call would write a line: one a second is enough.
    warnings = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert (
        "'order:7': bypassed, because on_unavailable is 'run': acquire of 'order:7' failed" in warnings[0].getMessage()
    )
    assert heard.statistics().held == 0


async def test_a_function_runs_while_the_server_cannot_be_reached(proxy: Proxy, redis: Redis) -> None:
    events: Events = []
    async with client_behind(proxy, on_event=events.append) as locks:

        @locks.synchronized("order", on_unavailable="run")
        async def ship() -> str:
            return "shipped"

        async def charge() -> str:
            return "charged"

        await proxy.cut_off()
        assert await ship() == "shipped"
        assert await locks.once("invoice", keep=60, on_unavailable="run").run(charge) == "charged"
        assert bypassed(events) == ["order", "invoice"]
        await proxy.heal()
        await until(lambda: _answers(locks), within=10)
        assert await ship() == "shipped"
        assert len(bypassed(events)) == 2


async def _answers(locks: LockClient) -> bool:
    try:
        await locks.ping()
    except BackendError:
        return False
    return True


async def test_replicas_that_do_not_answer_are_no_lock_either(redis: Redis) -> None:
    events: Events = []
    config = LockConfig(replicas=1, replicas_timeout=0.01, on_event=events.append)
    async with LockClient(redis, config=config) as locks:

        async def work() -> str:
            return "done"

        assert await locks.synchronized("order", on_unavailable="run")(work)() == "done"
        with pytest.raises(ReplicationError):
            await locks.synchronized("order")(work)()
    assert bypassed(events) == ["order"]


async def test_a_busy_lock_is_no_failure_of_redis(heard: LockClient, other: LockClient, events: Events) -> None:
    @heard.synchronized("order", wait=0.01, on_unavailable="run")
    async def ship() -> str:
        raise AssertionError("must not run")

    async with other.lock("order"), other.once("invoice", keep=60):
        with pytest.raises(LockTimeoutError):
            await ship()
        assert await heard.once("invoice", keep=60, wait=0, on_unavailable="run").run(ship) is None
    assert not bypassed(events)


@pytest.mark.parametrize("kind", ["lock", *(kind for kind in MAKERS if kind not in {"permits", "counted"})])
async def test_a_function_does_not_run_next_to_its_clients_holder(kind: str, heard: LockClient, events: Events) -> None:
    """The lock of such a holder is busy, whether or not Redis answers."""
    of, obstacle = (None, LockClient.lock) if kind == "lock" else MAKERS[kind]

    @heard.synchronized("order", of=of, on_unavailable="run")
    async def ship() -> str:
        return "shipped"

    holding, free = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        async with obstacle(heard, "order"):
            holding.set()
            await free.wait()

    holder = asyncio.create_task(hold())
    await holding.wait()
    with failing_commands(heard, None), pytest.raises(BackendError):
        await ship()
    free.set()
    await holder
    with failing_commands(heard, None):
        assert await ship() == "shipped"
    assert len(bypassed(events)) == (2 if kind == "multi" else 1)


@pytest.mark.parametrize("kind", ["read", "permits", "counted"])
async def test_a_function_runs_next_to_a_holder_that_leaves_room(kind: str, heard: LockClient) -> None:
    of, _ = MAKERS[kind]

    @heard.synchronized("order", of=of, on_unavailable="run")
    async def ship() -> str:
        return "shipped"

    async with of(heard, "order"):
        with failing_commands(heard):
            assert await asyncio.create_task(ship()) == "shipped"


async def test_the_holder_itself_may_go_on(heard: LockClient) -> None:
    @heard.synchronized("order", on_unavailable="run")
    async def inner() -> str:
        return "shipped"

    @heard.synchronized("order")
    async def outer() -> str:
        with failing_commands(heard):
            return await inner()

    assert await outer() == "shipped"


async def test_a_body_that_runs_once_does_not_run_twice_in_one_client(heard: LockClient, events: Events) -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def work() -> str:
        begun.set()
        await may_end.wait()
        return "done"

    once = heard.once("invoice", keep=60, on_unavailable="run", wait=0)
    running = asyncio.create_task(once.run(work))
    await begun.wait()
    with failing_commands(heard), pytest.raises(BackendError):
        await once.run(work)
    may_end.set()
    assert await running == "done"
    assert not bypassed(events)


async def test_the_turn_of_a_body_says_that_it_has_no_lock(heard: LockClient, other: LockClient) -> None:
    with failing_commands(heard):
        async with heard.once("invoice", keep=60, on_unavailable="run") as turn:
            assert (bool(turn), turn.bypassed, turn.lease, turn.done) == (True, True, None, False)
            turn.result = "not remembered"
    assert turn.done
    async with other.once("invoice", keep=60) as turn:
        assert (bool(turn), turn.bypassed) == (True, False)


async def test_an_error_of_the_function_is_raised(heard: LockClient, events: Events) -> None:
    """An error of Redis, or of a lock, is raised, too, if it is the function's own."""
    for error in (BackendError("mine"), LockTimeoutError("mine", 1), ZeroDivisionError()):

        async def fail(error: Exception = error) -> None:
            raise error

        guarded = heard.synchronized("order", busy="skip", on_unavailable="run")(fail)
        with pytest.raises(type(error)):
            await guarded()
        with pytest.raises(type(error)):
            await heard.once("invoice", keep=60, on_unavailable="run").run(fail)
        with failing_commands(heard), pytest.raises(type(error)):
            await guarded()
    assert bypassed(events) == ["order"] * 3


async def test_a_loss_is_raised_all_the_same(heard: LockClient) -> None:
    @heard.synchronized("order", on_unavailable="run")
    async def ship() -> None:
        await lose(heard, "order")
        await asyncio.Event().wait()

    with pytest.raises(LeaseLostError):
        await ship()


async def test_a_release_without_an_answer_does_not_lose_the_result(
    heard: LockClient, caplog: pytest.LogCaptureFixture
) -> None:
    with ExitStack() as stack:

        async def work() -> str:
            # The next command is the release.
            stack.enter_context(failing_commands(heard))
            return "done"

        with pytest.raises(BackendError):
            await heard.synchronized("order")(work)()
        assert await heard.synchronized("orders", on_unavailable="run")(work)() == "done"
        with pytest.raises(BackendError):
            await heard.once("invoice", keep=60).run(work)
        once = heard.once("invoices", keep=60, on_unavailable="run")
        assert [await once.run(work), await once.run(work)] == ["done"] * 2
    told = [each.getMessage() for each in caplog.records if "its function had ended" in each.getMessage()]
    assert [each.partition(":")[0] for each in told] == ["lock 'orders'", "lock 'invoices'"]


@pytest.mark.parametrize("mode", MODES)
async def test_a_call_that_is_cancelled_anywhere_has_run_or_not_and_leaves_nothing(
    mode: Mode, locks: LockClient, other: LockClient, redis: Redis
) -> None:
    done: list[bool] = []

    @locks.synchronized("order", busy="skip", on_unavailable="run")
    async def ship() -> bool:
        await asyncio.sleep(0)
        done.append(True)
        return True

    async def setup() -> None:
        done.clear()

    async def run(_: None) -> object:
        return await ship()

    async def verify(_: None, outcome: Outcome[object]) -> None:
        await answered(locks)
        assert (locks.statistics().held, outcome.swallowed) == (0, 0)
        await until(lambda: _free(other))

    assert await every_suspension(mode, setup, run, verify) > 1


async def _free(locks: LockClient) -> bool:
    return not await locks.lock("order").locked()


# While the lock is busy.


@pytest.mark.parametrize("kind", ["lock", *MAKERS])
async def test_a_call_is_skipped_while_the_lock_is_busy(
    kind: str, heard: LockClient, other: LockClient, events: Events
) -> None:
    of, obstacle = (None, LockClient.lock) if kind == "lock" else MAKERS[kind]

    @heard.synchronized("order", of=of, busy="skip")
    async def ship() -> str:
        return "shipped"

    async with obstacle(other, "order"):
        assert await ship() is None
    assert [event.reason for event in events if isinstance(event, NotAcquired)] == ["busy"]
    assert await ship() == "shipped"
    assert heard.statistics().held == 0


async def test_a_call_with_a_wait_is_skipped_only_after_that(heard: LockClient, other: LockClient) -> None:
    @heard.synchronized("order", wait=30, busy="skip")
    async def ship() -> str:
        return "shipped"

    async with other.lock("order"):
        shipping = asyncio.create_task(ship())
        await until(lambda: heard.statistics().parked == 1)
    assert await shipping == "shipped"


async def test_a_call_is_not_skipped_because_redis_fails(heard: LockClient) -> None:
    async def ship() -> str:
        return "shipped"

    with failing_commands(heard, None):
        with pytest.raises(BackendError):
            await heard.synchronized("order", busy="skip")(ship)()
        assert await heard.synchronized("order", busy="skip", on_unavailable="run")(ship)() == "shipped"


@pytest.mark.parametrize("settings", [{"busy": "wait"}, {"busy": None}, {"on_unavailable": "skip"}])
def test_other_words_are_refused_when_decorating(locks: LockClient, settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        locks.synchronized("order", **settings)
