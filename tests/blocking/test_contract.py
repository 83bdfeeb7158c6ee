"""The contract of every primitive, with threads as the owners."""

import asyncio
import inspect
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import pytest

from aiolock import ClientStatistics
from aiolock._core.session import Session
from aiolock.blocking import LockClient
from tests.blocking.threads import in_thread
from tests.contract.test_contract import (
    test_a_block_raises_a_timeout_when_its_wait_ends,
    test_a_child_is_another_owner_and_a_named_one_is_the_same_in_any_task,
    test_a_wait_that_ends_leaves_nothing,
    test_a_waiter_is_woken_by_a_message,
    test_the_holder_takes_it_again,
    test_there_are_never_too_many_holders,
)
from tests.contract.test_detached import (
    test_a_block_that_fails_leaves_its_adopter_alone,
    test_a_block_that_fails_takes_it_back,
    test_a_ticket_is_used_up_by_one_adoption,
    test_an_adopter_has_it_with_a_greater_token,
)

__all__ = [
    "test_a_block_raises_a_timeout_when_its_wait_ends",
    "test_a_block_that_fails_leaves_its_adopter_alone",
    "test_a_block_that_fails_takes_it_back",
    "test_a_child_is_another_owner_and_a_named_one_is_the_same_in_any_task",
    "test_a_ticket_is_used_up_by_one_adoption",
    "test_a_wait_that_ends_leaves_nothing",
    "test_a_waiter_is_woken_by_a_message",
    "test_an_adopter_has_it_with_a_greater_token",
    "test_the_holder_takes_it_again",
    "test_there_are_never_too_many_holders",
]

pytestmark = pytest.mark.slow

_PARTS = ("read", "write")
_MADE_AT_ONCE = ("check", "hold", "statistics")


class Threads:
    """Each task of a test has a thread, which makes the calls of that task."""

    def __init__(self) -> None:
        self._of: WeakKeyDictionary[asyncio.Task[Any], ThreadPoolExecutor] = WeakKeyDictionary()

    async def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """What *function* returns in the thread of the running task."""
        task = asyncio.current_task()
        assert task is not None
        thread = self._of.get(task)
        if thread is None:
            thread = self._of[task] = ThreadPoolExecutor(1, "worker")
            task.add_done_callback(lambda _: thread.shutdown(wait=False))
        return await asyncio.get_running_loop().run_in_executor(thread, partial(function, *args, **kwargs))


class Handle:
    """A handle of the blocking library, or a lease, with the asynchronous methods that the contract calls."""

    def __init__(self, threads: Threads, face: Any) -> None:
        self._threads = threads
        self._face = face

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._face, name)
        if name in _PARTS:
            return Handle(self._threads, member)
        if not callable(member):
            return member
        if name in _MADE_AT_ONCE:
            return lambda **terms: self._given(member(**terms))
        return partial(self._call, name)

    async def __aenter__(self) -> Any:
        return self._given(await self._threads.call(self._face.__enter__))

    async def __aexit__(self, *error: Any) -> None:
        await self._threads.call(self._face.__exit__, *error)

    async def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        inner = [plain(each) for each in args]
        return self._given(await self._threads.call(getattr(self._face, name), *inner, **kwargs))

    def _given(self, result: Any) -> Any:
        has_methods = hasattr(result, "release") or hasattr(result, "__enter__")
        return Handle(self._threads, result) if has_methods else result


def plain(argument: Any) -> Any:
    """An argument of the contract in the form that the blocking library takes; a body runs in the loop of the test."""
    if isinstance(argument, Handle):
        return argument._face
    if not inspect.iscoroutinefunction(argument):
        return argument
    loop = asyncio.get_running_loop()
    return lambda *args: asyncio.run_coroutine_threadsafe(argument(*args), loop).result()


class Sessions:
    """The door of `tests.support.inside` to the session, which runs in another loop than the test."""

    def __init__(self, client: LockClient) -> None:
        self._client = client

    def here(self) -> Session:
        session = self._client._async._sessions.session
        assert session is not None
        return session


class Client:
    """A blocking client, as the contract sees one."""

    def __init__(self, client: LockClient) -> None:
        self._threads = Threads()
        self._face = client
        self._sessions = Sessions(client)

    def statistics(self) -> ClientStatistics:
        return in_thread(self._face.statistics)

    async def adopt(self, ticket: str, **how: Any) -> Handle:
        return Handle(self._threads, await self._threads.call(self._face.adopt, ticket, **how))

    def __getattr__(self, name: str) -> Any:
        make = getattr(self._face, name)
        return lambda *args, **kwargs: Handle(self._threads, make(*args, **kwargs))


@pytest.fixture
def locks(client: LockClient) -> Client:
    return Client(client)


@pytest.fixture
def other(elsewhere: LockClient) -> Client:
    return Client(elsewhere)
