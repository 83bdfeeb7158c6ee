"""The decorator: a name from the bound arguments, the function's own signature, the lock around it."""

import asyncio
import inspect
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from redis.asyncio import Redis

import aiolock.blocking
from aiolock import LockClient, LockTimeoutError
from tests.support.makers import MAKERS, is_taken


async def held_by_us(locks: LockClient, name: str) -> bool:
    return locks.lock(name).statistics().held == 1


@dataclass
class Order:
    id: int
    tags: tuple[str, ...] = ("new",)


async def test_the_body_runs_under_the_lock_and_its_result_is_returned(locks: LockClient) -> None:
    @locks.synchronized("order:{order_id}")
    async def ship(order_id: int) -> str:
        assert await locks.lock("order:7").held()
        return f"shipped {order_id}"

    assert await ship(7) == "shipped 7"
    assert not await locks.lock("order:7").locked()


async def test_several_names_are_one_multi_lock(locks: LockClient) -> None:
    @locks.synchronized("account:{source}", "account:{target}", wait=10)
    async def transfer(source: int, target: int) -> list[bool]:
        return [await held_by_us(locks, f"account:{number}") for number in (source, target)]

    for held in await asyncio.gather(transfer(1, 2), transfer(2, 1), transfer(1, 1)):
        assert held == [True, True]
    assert locks.statistics().held == 0
    with pytest.raises(ValueError, match="names no parameter"):
        locks.synchronized("account:{source}", "account:{goal}")(transfer)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda f: f(1), "1:eu:d"),
        (lambda f: f(1, "us"), "1:us:d"),
        (lambda f: f(region="us", order_id=2), "2:us:d"),
        (lambda f: f(3, depot="x"), "3:eu:x"),
    ],
    ids=["defaults", "positional", "keywords", "keyword-only"],
)
async def test_the_name_is_built_from_the_bound_arguments(
    locks: LockClient, call: Callable[[Any], Any], name: str
) -> None:
    @locks.synchronized("{order_id}:{region}:{depot}")
    async def ship(order_id: int, region: str = "eu", *, depot: str = "d") -> bool:
        return await held_by_us(locks, name)

    assert await call(ship)


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("order:{order.id}", "order:5"),
        ("tag:{order.tags[0]}", "tag:new"),
        ("padded:{number:05d}", "padded:00042"),
        ("wide:{number:0{width}d}", "wide:042"),
        ("repr:{text!r}", "repr:'a'"),
        ("{{braces}}:{number}", "{braces}:42"),
        ("constant", "constant"),
    ],
)
async def test_a_template_is_a_format_string(locks: LockClient, template: str, name: str) -> None:
    @locks.synchronized(template)
    async def work(order: Order, number: int, text: str, width: int = 3) -> bool:
        return await held_by_us(locks, name)

    assert await work(Order(5), 42, "a")


async def test_extra_arguments_can_be_part_of_the_name(locks: LockClient) -> None:
    @locks.synchronized("{ids}:{options}")
    async def work(*ids: int, **options: bool) -> bool:
        return await held_by_us(locks, "(1, 2):{'fast': True}")

    assert await work(1, 2, fast=True)


async def test_it_decorates_methods(locks: LockClient) -> None:
    class Shop:
        def __init__(self, name: str) -> None:
            self.name = name

        @locks.synchronized("{self.name}:{order_id}")
        async def ship(self, order_id: int) -> bool:
            return await held_by_us(locks, f"{self.name}:{order_id}")

        @classmethod
        @locks.synchronized("{cls.__name__}:{order_id}")
        async def count(cls, order_id: int) -> bool:
            return await held_by_us(locks, f"Shop:{order_id}")

        @staticmethod
        @locks.synchronized("static:{order_id}")
        async def check(order_id: int) -> bool:
            return await held_by_us(locks, f"static:{order_id}")

    assert await Shop("north").ship(3)
    assert await Shop.count(3)
    assert await Shop.check(3)


async def test_the_function_keeps_its_signature_and_its_papers(locks: LockClient) -> None:
    async def ship(order_id: int, *, region: str = "eu") -> str:
        """Ship it."""
        return region

    decorated = locks.synchronized("{order_id}")(ship)
    assert inspect.signature(decorated) == inspect.signature(ship)
    assert inspect.iscoroutinefunction(decorated)
    assert (decorated.__name__, decorated.__doc__, decorated.__module__) == ("ship", "Ship it.", __name__)
    assert inspect.unwrap(decorated) is ship
    assert decorated.__annotations__ == ship.__annotations__


async def test_wrong_arguments_are_a_type_error_and_take_no_lock(locks: LockClient) -> None:
    @locks.synchronized("{order_id}")
    async def ship(order_id: int) -> None:
        raise AssertionError("must not run")

    with pytest.raises(TypeError, match="missing a required argument: 'order_id'"):
        await ship()  # type: ignore[call-arg]
    assert locks.statistics().commands == 0


async def test_an_empty_name_is_refused_at_the_call(locks: LockClient) -> None:
    @locks.synchronized("{order_id}")
    async def ship(order_id: str) -> None:
        raise AssertionError("must not run")

    with pytest.raises(ValueError, match="name must not be empty"):
        await ship("")


@pytest.mark.parametrize("argument", [object(), [object()], lambda: None, str(object())])
async def test_a_name_that_no_other_process_would_make_is_refused_at_the_call(
    locks: LockClient, argument: object
) -> None:
    """Python writes the address of an object whose class has no text for it: each process would have its own lock."""

    @locks.synchronized("job:{job}")
    async def ship(job: object) -> None:
        raise AssertionError("must not run")

    with pytest.raises(ValueError, match=r"^the name 'job:{job}' has the address of an object in {job}, '.+'"):
        await ship(argument)
    assert locks.statistics().commands == 0


@pytest.mark.parametrize("argument", [{1}, frozenset("ab"), (1, [{"tags": {1}}]), {frozenset("ab"): 1}])
async def test_a_set_is_no_part_of_a_name_because_it_has_another_order_in_each_process(
    locks: LockClient, argument: object
) -> None:
    @locks.synchronized("shop:{shop}", "tags:{tags!s:>9}")
    async def ship(shop: int, tags: object) -> None:
        raise AssertionError("must not run")

    with pytest.raises(ValueError, match=r"^the name 'tags:{tags!s:>9}' has a set in {tags}, whose order .*sorted"):
        await ship(1, argument)
    assert locks.statistics().commands == 0


async def test_a_set_that_is_an_attribute_or_an_item_is_no_part_of_a_name(locks: LockClient) -> None:
    @locks.synchronized("{order.tags}:{options[tags]}")
    async def ship(order: Any, **options: object) -> None:
        raise AssertionError("must not run")

    with pytest.raises(ValueError, match=r"has a set in {order\.tags}"):
        await ship(SimpleNamespace(tags={"a", "b"}), tags=1)
    with pytest.raises(ValueError, match=r"has a set in {options\[tags\]}"):
        await ship(Order(5), tags={"a", "b"})


@pytest.mark.parametrize(
    ("template", "arguments", "words"),
    [
        ("s:{number:03d}", {"number": "7"}, r"^the name 's:{number:03d}' cannot be made: {number} raises .*code 'd'"),
        ("{number:{options[width]}}", {}, r"^the name '{number:.*' cannot be made: {options\[width\]} raises KeyError"),
        ("{number.id}", {}, r"{number\.id} raises AttributeError"),
        ("{number[0]}", {}, r"{number\[0\]} raises TypeError"),
    ],
)
async def test_a_call_that_makes_no_name_is_told_of_the_template(
    template: str, arguments: dict[str, Any], words: str, locks: LockClient
) -> None:
    @locks.synchronized(template)
    async def ship(number: object = 7, **options: object) -> None:
        raise AssertionError("must not run")

    with pytest.raises(ValueError, match=words):
        await ship(**arguments)


async def test_a_set_that_is_not_in_the_name_is_no_matter(locks: LockClient) -> None:
    @locks.synchronized("tags:{number}")
    async def ship(number: int, tags: set[str]) -> bool:
        return await held_by_us(locks, "tags:2")

    assert await ship(2, {"a", "b"})


@pytest.mark.parametrize("template", ["{oder_id}", "{oder_id.x}", "{order_id:{width}}", "{}", "{0}", "a{order_id}{b}"])
async def test_a_wrong_placeholder_fails_when_decorating(locks: LockClient, template: str) -> None:
    async def ship(order_id: int) -> None: ...

    with pytest.raises(ValueError, match=r"names no parameter of the function \(it has: order_id\)"):
        locks.synchronized(template)(ship)


async def test_a_conversion_that_does_not_exist_fails_when_decorating(locks: LockClient) -> None:
    async def ship(order_id: int) -> None: ...

    with pytest.raises(ValueError, match=r"^'{order_id!x:}': there is no conversion !x$"):
        locks.synchronized("{order_id!x:}")(ship)


@pytest.mark.parametrize("template", ["{order_id", "order_id}", "a:{", "{order_id!xx}"])
async def test_a_broken_template_fails_at_once_and_says_how_to_write_a_brace(locks: LockClient, template: str) -> None:
    with pytest.raises(ValueError, match=re.escape(template) + ".*; a placeholder is .* written twice"):
        locks.synchronized(template)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"name": ""}, ValueError),
        ({"name": None}, TypeError),
        ({"name": "a", "wait": -1}, ValueError),
        ({"name": "a", "wait": "1"}, TypeError),
        ({"name": "a", "lease": 0}, ValueError),
        ({"name": "a", "lease": True}, TypeError),
    ],
)
async def test_bad_arguments_fail_when_decorating(
    locks: LockClient, arguments: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        locks.synchronized(**arguments)


async def numbers(order_id: int) -> AsyncIterator[int]:
    yield order_id


def plain(order_id: int) -> None: ...


@pytest.mark.parametrize("function", [plain, numbers, print, object(), staticmethod(plain)])
async def test_a_function_that_is_no_coroutine_function_is_refused(locks: LockClient, function: Any) -> None:
    words = r"synchronized is for coroutine functions \(async def without yield; @staticmethod and @classmethod stand"
    with pytest.raises(TypeError, match=words):
        locks.synchronized("{order_id}")(function)


@pytest.mark.parametrize("make", [LockClient, aiolock.blocking.LockClient])
async def test_a_decorator_without_a_name_is_told_how_to_write_it(make: Any, redis: Redis) -> None:
    with pytest.raises(TypeError, match=r"as in @synchronized\('order:{order_id}'\), must be a str, not <func"):
        make(redis).synchronized(plain)


async def test_a_partial_is_decorated_too(locks: LockClient) -> None:
    async def ship(region: str, order_id: int) -> bool:
        return await held_by_us(locks, f"{region}:{order_id}")

    assert await locks.synchronized("eu:{order_id}")(partial(ship, "eu"))(4)


async def test_a_wait_that_ends_raises_a_lock_timeout(locks: LockClient) -> None:
    @locks.synchronized("order", wait=0)
    async def ship() -> None:
        raise AssertionError("must not run")

    async with locks.lock("order", owner="somebody"):
        with pytest.raises(LockTimeoutError) as caught:
            await ship()
    assert caught.value.name == "order"
    assert 0 <= caught.value.waited < 5


async def test_calls_of_one_name_exclude_each_other_and_others_do_not(locks: LockClient) -> None:
    running: list[int] = []
    both = asyncio.Event()

    @locks.synchronized("order:{order_id}")
    async def ship(order_id: int) -> None:
        assert order_id not in running
        running.append(order_id)
        if len(running) == 2:
            both.set()
        await both.wait()
        running.remove(order_id)

    await asyncio.gather(*(ship(number % 2) for number in range(6)))
    assert running == []


async def test_a_fixed_lease_has_the_length_that_was_asked_for(locks: LockClient) -> None:
    @locks.synchronized("order", lease=5)
    async def ship() -> float | None:
        return await locks.lock("order").remaining()

    left = await ship()
    assert left is not None
    assert 4 < left <= 5


# Primitives other than a lock.


@pytest.mark.parametrize("kind", MAKERS)
async def test_it_runs_under_any_primitive_of_its_name(kind: str, locks: LockClient, other: LockClient) -> None:
    of, obstacle = MAKERS[kind]

    @locks.synchronized("report:{day}", of=of, wait=0.05)
    async def read(day: int) -> bool:
        return await is_taken(locks, kind, f"report:{day}")

    assert await read(7)
    assert not await is_taken(locks, kind, "report:7")
    async with obstacle(other, "report:7"):
        with pytest.raises(LockTimeoutError, match="report:7"):
            await read(7)
        assert await read(8)


async def test_several_names_are_one_multi_lock_of_primitives_made_of_each_name(locks: LockClient) -> None:
    @locks.synchronized("{one}", "{two}", of=lambda locks, name: locks.read_write_lock(name).write)
    async def swap(one: str, two: str) -> list[bool]:
        return [await locks.read_write_lock(name).write.held() for name in (one, two)]

    assert await swap("b", "a") == [True, True]
    assert locks.statistics().held == 0


async def test_a_made_primitive_may_have_a_lease_unless_it_only_counts(locks: LockClient) -> None:
    @locks.synchronized("report", of=lambda locks, name: locks.read_write_lock(name).read, lease=5)
    async def read() -> float | None:
        return await locks.read_write_lock("report").read.remaining()

    @locks.synchronized("seats", of=LockClient.counting_semaphore, lease=5)
    async def sit() -> None: ...

    left = await read()
    assert left is not None
    assert 4 < left <= 5
    with pytest.raises(TypeError, match="'seats'> only counts permits, and has no lease"):
        await sit()


@pytest.mark.parametrize(
    "of",
    [
        LockClient.read_write_lock,
        LockClient.count_down_latch,
        lambda locks, name: locks.lock(name).hold(),
        lambda locks, name: name,
    ],
)
@pytest.mark.filterwarnings("ignore:.*was never entered")
async def test_a_primitive_without_blocks_is_refused(of: Any, locks: LockClient) -> None:
    async def ship() -> None: ...

    with pytest.raises(TypeError, match="of must return a lock"):
        await locks.synchronized("order", of=of)(ship)()
    with pytest.raises(TypeError, match="a multi lock consists of"):
        await locks.synchronized("one", "two", of=of)(ship)()


def test_a_maker_that_is_no_function_is_refused_at_once(locks: LockClient) -> None:
    with pytest.raises(TypeError, match="of must be a function of the client and the name"):
        locks.synchronized("order", of=locks.counting_semaphore("order", 3))  # type: ignore[call-overload]
