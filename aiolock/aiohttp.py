"""
Locks in aiohttp: `setup`, `LOCKS`, and `synchronized`, a decorator that runs handlers under a lock.

Needs aiohttp 3.9 or later (the extra ``aiohttp``).
"""

import functools
import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from aiohttp import web
from aiohttp.typedefs import Handler
from redis.asyncio import Redis, RedisCluster

from aiolock._client import LockClient
from aiolock._config import LockConfig
from aiolock._errors import AioLockError
from aiolock._handler import RefusedError, locked_for_handler
from aiolock._lease import Lease
from aiolock._problem import CONFLICT, ERRORS, MEDIA_TYPE, Problem, problem_of
from aiolock._types import Duration, lease_seconds, seconds, text

__all__ = ["LOCKS", "LockProblem", "lease_from", "locks_from", "problems", "setup", "synchronized"]

LOCKS: web.AppKey[LockClient] = web.AppKey("LOCKS", LockClient)
"""Where the application keeps its client: ``request.app[LOCKS]``."""

_LEASE = "aiolock.lease"
HandlerOrMethod = TypeVar("HandlerOrMethod", bound=Callable[..., Awaitable[web.StreamResponse]])


class LockProblem(web.HTTPException):
    """What `synchronized` and `problems` raise: a problem document of RFC 9457."""

    def __init__(self, problem: Problem) -> None:
        self.status_code = problem.status
        body = json.dumps(problem.document)
        super().__init__(headers=problem.headers, text=body, content_type=MEDIA_TYPE)
        self.problem = problem


def setup(app: web.Application, redis: Redis | RedisCluster | str, *, config: LockConfig | None = None) -> None:
    """
    Keep a `LockClient` in ``app[LOCKS]`` while *app* runs, and answer errors of aiolock with `problems`.

    *redis* is a URL, or a client of yours, which is not closed. A client that is in ``app[LOCKS]`` before the start,
    a test's, is left alone. Starting does no I/O; closing waits `LockConfig.release_timeout` at most, for what is
    still held.
    """

    async def keep(app: web.Application) -> AsyncIterator[None]:
        if LOCKS in app:
            yield
            return
        made = isinstance(redis, str)
        async with LockClient.from_url(redis, config=config) if made else LockClient(redis, config=config) as locks:
            app[LOCKS] = locks
            yield

    app.cleanup_ctx.append(keep)
    app.middlewares.append(problems)


def locks_from(request: web.Request) -> LockClient:
    """
    The client of the request's application, or of the one that it is a part of.

    Raises:
        RuntimeError: there is none.
    """
    try:
        return request.config_dict[LOCKS]
    except KeyError:
        raise RuntimeError("this application has no LockClient: call aiolock.aiohttp.setup(app, url)") from None


def lease_from(request: web.Request) -> Lease:
    """
    The lease that a handler under `synchronized` has, for its token or its `Lease.check`.

    Raises:
        RuntimeError: the handler of this request is not under a lock.
    """
    lease = request.get(_LEASE)
    if not isinstance(lease, Lease):
        raise RuntimeError("the handler of this request has no lease: it is not decorated with `synchronized`")
    return lease


@web.middleware
async def problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer errors of aiolock: 409 when a wait has ended, 503 when Redis failed or a lock was lost."""
    try:
        return await handler(request)
    except ERRORS as error:
        problem = problem_of(error)
        assert problem is not None
        raise LockProblem(problem) from error


def synchronized(
    key: str | Callable[[web.Request], str | Awaitable[str]],
    *,
    wait: Duration | None = 0,
    lease: Duration | None = None,
    status: int = CONFLICT,
) -> Callable[[HandlerOrMethod], HandlerOrMethod]:
    """
    Decorate a handler, or a method of a `web.View`, to run under a lock of the request.

    *key* is a template of the path's variables, ``"order:{order_id}"``, as they are in the path, so that ``7`` and
    ``07`` are two locks; or a function of the request that returns the name. *wait* and *lease* (seconds) as in
    `AsyncRLock.try_lock`. The lock is released after the handler and before its response leaves, unless the handler
    streams. When it is lost, the handler is cancelled.

    Raises:
        LockProblem: *status*, 409 by default, when the wait ends; 503 when Redis fails or the lock is lost.
        TypeError: when decorating; the handler is no coroutine function.
    """
    most = None if wait is None else seconds(wait, "wait", zero=True)
    length = None if lease is None else lease_seconds(lease)
    if isinstance(key, str):
        text(key, "the key")

    def decorate(handler: HandlerOrMethod) -> HandlerOrMethod:
        if not inspect.iscoroutinefunction(handler):
            raise TypeError(f"synchronized is for coroutine functions (async def), not {handler!r}")

        @functools.wraps(handler)
        async def under_lock(*args: Any) -> web.StreamResponse:
            request = _request_of(args)
            lock = locks_from(request).lock(await _name(key, request))
            try:
                async with locked_for_handler(lock, most, length, status) as request[_LEASE]:
                    return await handler(*args)
            except RefusedError as refused:
                raise LockProblem(refused.problem) from refused.__cause__

        return under_lock  # type: ignore[return-value]  # It takes and gives what the handler does.

    return decorate


def _request_of(args: tuple[Any, ...]) -> web.Request:
    """The request, of what a handler or a method is called with."""
    last = args[-1]
    return last.request if isinstance(last, web.View) else last  # type: ignore[no-any-return]


async def _name(key: str | Callable[[web.Request], str | Awaitable[str]], request: web.Request) -> str:
    if isinstance(key, str):
        return key.format_map(request.match_info)
    name = key(request)
    return await name if isinstance(name, Awaitable) else name
