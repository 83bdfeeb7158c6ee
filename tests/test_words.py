"""Errors name aiolock's word for a word of redis-py's lock, and say how to write a verb that has no `await`."""

import asyncio
import inspect
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import aiolock
import aiolock.blocking
from aiolock import LockClient
from tests.contract.acts import nothing_under_way
from tests.support.calls import is_coroutine_function
from tests.support.observe import all_parked, until

# Errors name only the verb, which has the same name in the classes for threads.
CALLS: dict[str, Callable[[Any, dict[str, object]], object]] = {
    "LockClient.lock": lambda locks, words: locks.lock("a", **words),
    "LockClient.fair_lock": lambda locks, words: locks.fair_lock("a", **words),
    "LockClient.read_write_lock": lambda locks, words: locks.read_write_lock("a", **words),
    "AsyncRLock.acquire": lambda locks, words: locks.lock("a").acquire(**words),
    "AsyncRLock.try_lock": lambda locks, words: locks.lock("a").try_lock(**words),
    "AsyncRLock.hold": lambda locks, words: locks.lock("a").hold(**words),
    "AsyncFairLock.acquire": lambda locks, words: locks.fair_lock("a").acquire(**words),
    "AsyncReadLock.hold": lambda locks, words: locks.read_write_lock("a").read.hold(**words),
    "AsyncMultiLock.acquire": lambda locks, words: locks.multi("a").acquire(**words),
    "AsyncMultiLock.try_lock": lambda locks, words: locks.multi("a").try_lock(**words),
    "AsyncSemaphore.acquire": lambda locks, words: locks.semaphore("a").acquire(**words),
    "AsyncSemaphore.hold": lambda locks, words: locks.semaphore("a").hold(**words),
    "AsyncCountingSemaphore.acquire": lambda locks, words: locks.counting_semaphore("a").acquire(**words),
    "AsyncCountingSemaphore.try_acquire": lambda locks, words: locks.counting_semaphore("a").try_acquire(**words),
    "AsyncCountingSemaphore.hold": lambda locks, words: locks.counting_semaphore("a").hold(**words),
    "AsyncCountDownLatch.wait": lambda locks, words: locks.count_down_latch("a").wait(**words),
    "LockClient.semaphore": lambda locks, words: locks.semaphore("a", **words),
    "LockClient.counting_semaphore": lambda locks, words: locks.counting_semaphore("a", **words),
    "AsyncLeader.try_lead": lambda locks, words: locks.leader("a").try_lead(**words),
    "AsyncMultiLock.hold": lambda locks, words: locks.multi("a").hold(**words),
}
KEYWORDS = {
    "timeout": "`lease=`",
    "blocking": "lock.try_acquire()",
    "blocking_timeout": "lock.try_acquire(wait=5)",
    "sleep": "leave it out",
    "thread_local": "locks.lock(name, owner='job-17')",
    "raise_on_release_error": "leave it out",
    "lock_class": "locks.fair_lock",
    "token": "`lease.token`",
    "value": "`permits=`",
}
ATTRIBUTES = {
    "extend": "await lease.renew(30)",
    "reacquire": "await lease.renew()",
    "owned": "await lock.held()",
    "unlock": "await lock.release()",
    "is_locked": "await lock.locked()",
    "local": "lease.token",
    "token": "lease.token",
    "renew": "await lease.renew()",
}


async def refusal(call: Callable[[], object], error: type[Exception]) -> str:
    """The text of the error that the call or its await raises."""
    with pytest.raises(error) as refused:
        if isinstance(called := call(), Awaitable):
            await called
    return str(refused.value)


@pytest.mark.parametrize("call", CALLS)
async def test_the_word_of_redis_py_in_a_call_is_refused_with_that_of_aiolock(locks: LockClient, call: str) -> None:
    verb = call if call.startswith("LockClient.") else call.partition(".")[2]
    for word, instead in KEYWORDS.items():
        told = await refusal(lambda word=word: CALLS[call](locks, {word: None}), TypeError)  # type: ignore[misc]
        assert told.startswith(f"{verb}() got an unexpected keyword argument {word!r}: ")
        assert instead in told
    told = await refusal(lambda: CALLS[call](locks, {"nonsense": 1}), TypeError)
    assert told == f"{verb}() got an unexpected keyword argument 'nonsense'"


async def test_a_method_of_redis_pys_lock_is_refused_with_that_of_aiolock(locks: LockClient) -> None:
    lock = locks.lock("a")
    async with lock as lease:
        for each in (lock, lease, locks.multi("a"), locks.read_write_lock("b").write, locks.semaphore("c")):
            for name, instead in ATTRIBUTES.items():
                if hasattr(each, name):
                    continue
                with pytest.raises(AttributeError) as refused:
                    getattr(each, name)
                assert str(refused.value).startswith(
                    f"{type(each).__name__!r} object has no attribute {name!r}: write "
                )
                assert instead in str(refused.value)
                assert refused.value.name == name
            with pytest.raises(AttributeError, match=r"no attribute 'nonsense'$"):
                getattr(each, "nonsense")  # noqa: B009


async def test_wrong_arguments_of_an_acquire_are_refused_at_the_call(locks: LockClient) -> None:
    lock: Any = locks.lock("a")
    with pytest.raises(TypeError, match=r"^lock\.acquire\(\) takes 1 positional argument but 2 were given$"):
        lock.acquire(5)
    with pytest.raises(TypeError, match=r"^acquire\(\) got an unexpected keyword argument 'timeout'"):
        lock.acquire(timeout=5)
    with pytest.raises(TypeError, match=r"^force_release\(\) got an unexpected keyword argument 't"):
        locks.read_write_lock("a").read.force_release(token=5)  # type: ignore[call-arg, unused-coroutine]


PUBLIC = (
    "counting_semaphore",
    "semaphore",
    "count_down_latch",
    "once",
    "leader",
    "slot",
    "multi",
    "synchronized",
)


@pytest.mark.parametrize("made", PUBLIC)
async def test_an_argument_that_no_factory_has_is_refused_in_the_name_of_the_client(
    locks: LockClient, made: str
) -> None:
    with pytest.raises(TypeError, match=rf"LockClient\.{made}\(\) got an unexpected keyword argument 'timeout'"):
        getattr(locks, made)("a", timeout=3)


async def test_a_time_is_refused_where_nothing_waits_or_is_acquired(locks: LockClient) -> None:
    for call in (locks.lock, locks.semaphore):
        for word in ("wait", "lease"):
            told = await refusal(lambda call=call, word=word: call("a", **{word: 5}), TypeError)  # type: ignore[misc]
            assert f"lock.hold({word}=" in told
    told = await refusal(lambda: CALLS["AsyncRLock.acquire"](locks, {"wait": 5}), TypeError)
    assert "lock.try_acquire(wait=5)" in told


async def test_the_verb_of_locks_leads_to_that_of_semaphores(locks: LockClient) -> None:
    for each in (locks.semaphore("a"), locks.counting_semaphore("a")):
        with pytest.raises(AttributeError, match="write try_acquire"):
            each.try_lock()  # type: ignore[union-attr]


HANDLES: dict[str, Callable[[LockClient], object]] = {
    "AsyncRLock": lambda locks: locks.lock("a"),
    "AsyncFairLock": lambda locks: locks.fair_lock("a"),
    "AsyncMultiLock": lambda locks: locks.multi("a", "b"),
    "AsyncReadWriteLock": lambda locks: locks.read_write_lock("a"),
    "AsyncReadLock": lambda locks: locks.read_write_lock("a").read,
    "AsyncWriteLock": lambda locks: locks.read_write_lock("a").write,
    "AsyncSemaphore": lambda locks: locks.semaphore("a"),
    "AsyncCountingSemaphore": lambda locks: locks.counting_semaphore("a"),
    "AsyncCountDownLatch": lambda locks: locks.count_down_latch("a"),
    "AsyncLeader": lambda locks: locks.leader("a"),
    "AsyncOnce": lambda locks: locks.once("a", keep=60),
}


def called(handle: object, verb: str) -> Any:
    """The coroutine of *verb*, with any arguments: it will not run."""
    method = getattr(handle, verb)
    needed = [each for each in inspect.signature(method).parameters.values() if each.default is each.empty]
    return method(*(None for each in needed if each.kind not in {each.VAR_POSITIONAL, each.VAR_KEYWORD}))


def verbs(handle: object) -> list[str]:
    """The public coroutine functions of the handle."""
    return [name for name in dir(handle) if name[0] != "_" and is_coroutine_function(getattr(type(handle), name))]


@pytest.mark.parametrize("kind", HANDLES)
async def test_a_verb_without_await_is_no_answer(locks: LockClient, kind: str) -> None:
    handle = HANDLES[kind](locks)
    for verb in verbs(handle):
        coroutine = called(handle, verb)
        with pytest.raises(TypeError, match=rf"{verb.replace('try_acquire', 'try_')}.*was not awaited.*Write `await`"):
            bool(coroutine)
        coroutine.close()
    assert locks.statistics().commands == 0


def test_handles_has_a_line_for_each_primitive() -> None:
    without = {name for name in aiolock.__all__ if name.startswith("Async")} - HANDLES.keys()
    assert not without, f"add a line to HANDLES for each of {sorted(without)}: its verbs are tried without `await`"


async def test_the_coroutine_of_a_verb_is_a_coroutine_for_asyncio_and_for_debuggers(locks: LockClient) -> None:
    lock = locks.lock("a", owner="job-17")
    elsewhere, lease = await asyncio.gather(locks.lock("b").locked(), lock.try_lock())
    assert (elsewhere, type(lease)) == (False, aiolock.Lease)
    coroutine: Any = lock.release()
    task = asyncio.create_task(coroutine)
    assert "lock.release" in repr(task)
    await asyncio.sleep(0)
    assert (asyncio.iscoroutine(coroutine), inspect.isawaitable(coroutine)) == (True, True)
    assert "coroutine object" in repr(coroutine)
    assert coroutine.__qualname__ == "lock.release"
    assert weakref.ref(coroutine)() is coroutine
    assert "lock.release" in repr(task)
    assert [frame.f_code.co_name for frame in task.get_stack()] == ["release"]
    await task


async def test_a_cancelled_task_of_the_coroutine_of_a_verb_ends(locks: LockClient, other: LockClient) -> None:
    async with other.lock("a"):
        waiting = asyncio.create_task(locks.lock("a", owner="job-17").acquire())
        await all_parked(locks, 1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await until(lambda: nothing_under_way(locks))
    assert not await locks.lock("a").locked()


# Its own error speaks of names.
MADE_OF_NAMES = {"AsyncMultiLock"}


@pytest.mark.parametrize("kind", sorted(HANDLES.keys() - MADE_OF_NAMES))
def test_the_error_of_a_constructor_says_what_to_call_instead(kind: str) -> None:
    for arguments, words in ((("redis", "a"), {"timeout": 5}), ((), {})):
        with pytest.raises(TypeError, match=r"LockClient\(redis\)\.lock\('orders'\): \w+\.__init__\(\) ") as refused:
            getattr(aiolock, kind)(*arguments, **words)
        assert "Single" not in str(refused.value)


async def test_the_error_about_an_attribute_of_one_lease_leads_to_the_leases_of_a_multi_lock(locks: LockClient) -> None:
    async with locks.multi("a", "b") as both:
        for name, instead in (("name", "lease.leases"), ("token", r"lease.tokens\[name\]")):
            with pytest.raises(AttributeError, match=f"'MultiLease' object has no attribute '{name}': .*{instead}"):
                getattr(both, name)


async def test_the_error_about_a_block_of_a_verb_shows_the_block_of_the_lock(locks: LockClient) -> None:
    lock: Any = locks.lock("a")
    for verb in (lock.acquire, lock.try_lock):
        with pytest.raises(TypeError, match=r"not \w+\.\w+\(\): write `async with lock:`"):
            async with verb():
                pass
        coroutine = verb()
        with pytest.raises(TypeError, match=r"^'coroutine' object does not support the context manager"), coroutine:
            pass
        coroutine.close()
    assert locks.statistics().commands == 0
