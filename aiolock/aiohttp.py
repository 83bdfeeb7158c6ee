"""
Locks in aiohttp: `setup`, `LOCKS`, and `synchronized`, a decorator that runs handlers under a lock.

Needs aiohttp 3.10.11 or later (the extra ``aiohttp``).
"""

import asyncio
import functools
import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, NoReturn, TypeVar, get_args
from weakref import WeakSet

from aiohttp import web
from aiohttp.typedefs import Handler
from redis.asyncio import Redis, RedisCluster

from aiolock import AioLockError, ClientClosedError, Duration, Lease, LockClient, LockConfig, MultiLease
from aiolock._client import Maker
from aiolock._primitives.handle import Handle
from aiolock._primitives.synchronized import check_maker
from aiolock._types import lease_seconds, seconds
from aiolock._web import page
from aiolock._web.handler import locked_for_handler
from aiolock._web.health import HEALTHY, NO_STORE, health_of
from aiolock._web.key_template import parameters_of
from aiolock._web.problem import CONFLICT, ERRORS, MEDIA_TYPE, Problem, error_status, problem_of

__all__ = [
    "LOCKS",
    "LockProblem",
    "healthz",
    "lease_from",
    "leases_from",
    "locks_from",
    "locks_page",
    "problems",
    "setup",
    "synchronized",
]

LOCKS: web.AppKey[LockClient] = web.AppKey("LOCKS", LockClient)
"""Where the application keeps its client: ``request.app[LOCKS]``."""

_AT_WORK: web.AppKey["WeakSet[asyncio.Task[Any]]"] = web.AppKey("AT_WORK", WeakSet)  # Handlers that use the client.
# aiohttp has keys with types for requests since 3.14, and warns about others since then.
_LEASE: Any = web.RequestKey("LEASE", object) if hasattr(web, "RequestKey") else "aiolock.lease"

_NO_LEASE = (
    "the handler of this request has no lease: it is not decorated with `synchronized`, or under what only counts"
)

Names = str | Sequence[str]
Key = str | Callable[[web.Request], Names | Awaitable[Names]]

_ANSWERS = (web.StreamResponse, web.View)

HandlerOrMethod = TypeVar("HandlerOrMethod", bound=Callable[..., Awaitable[web.StreamResponse]])


class LockProblem(web.HTTPError):
    """What `synchronized` and `problems` raise: a problem document of RFC 9457."""

    def __init__(self, problem: Problem) -> None:
        self.status_code: int = problem.status
        body = json.dumps(problem.document)
        super().__init__(headers=problem.headers, text=body, content_type=MEDIA_TYPE)
        self.problem: Problem = problem


def setup(app: web.Application, redis: Redis | RedisCluster | str, *, config: LockConfig | None = None) -> None:
    """
    Keep a `LockClient` in ``app[LOCKS]`` while *app* runs, and answer errors of aiolock with `problems`.

    *redis* is a URL, or a client of yours, which is not closed. A client that is in ``app[LOCKS]`` before the start,
    a test's, is left alone. Sub-applications use the client of the application that they are a part of. Starting does
    no I/O. At the end of *app*, handlers that use the client (by `synchronized` or `locks_from`) and still run are
    cancelled, those of clients which have gone too, and have `LockConfig.release_timeout` to roll back under their
    locks. Closing takes as long again at most, and releases what is still held. *app* does not start again after that.

    Raises:
        TypeError, ValueError: what `LockClient` raises about *redis* and *config*.
        RuntimeError: it was called for *app* before. At the start: *app* had been started, and has ended.
    """
    if not isinstance(app, web.Application):
        raise TypeError(f"setup needs the application first, as in setup(app, redis), not {app!r}")
    if _AT_WORK in app:
        raise RuntimeError("aiolock.aiohttp.setup was called for this application before")
    settings = config or LockConfig()
    client = LockClient.from_url(redis, config=config) if isinstance(redis, str) else LockClient(redis, config=config)
    app[_AT_WORK] = WeakSet()

    async def keep(app: web.Application) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            if app.get(LOCKS, client) is client:
                await _enter(stack, client)
            if LOCKS not in app:
                app[LOCKS] = client
            yield
            await _end(app[_AT_WORK], seconds(settings.release_timeout, "release_timeout"))

    app.cleanup_ctx.append(keep)
    app.middlewares.append(problems)


async def _enter(stack: AsyncExitStack, client: LockClient) -> None:
    try:
        await stack.enter_async_context(client)
    except ClientClosedError as closed:  # aiohttp lets nobody put another one into an application that was started.
        raise RuntimeError("this application and its LockClient have ended: make a new one to start") from closed


def locks_from(request: web.Request) -> LockClient:
    """
    The client of the request's application, or of the one that it is a part of.

    `setup` does not close it before the task that asks has ended, or had its time to.

    Raises:
        RuntimeError: there is none.
    """
    try:
        locks = request.config_dict[LOCKS]
    except KeyError:
        raise RuntimeError("this application has no LockClient: call aiolock.aiohttp.setup(app, url)") from None
    _note_work(request)
    return locks


def lease_from(request: web.Request) -> Lease:
    """
    The lease that a handler under `synchronized` has, for its token or its `Lease.check`.

    Under several decorators, the one of the innermost.

    Raises:
        RuntimeError: the handler of this request is not under a lock, or under one of several names.
    """
    lease = request.get(_LEASE)
    if isinstance(lease, MultiLease):
        raise RuntimeError("the handler of this request has a lease of several names: ask leases_from(request) for it")
    if not isinstance(lease, Lease):
        raise RuntimeError(_NO_LEASE)
    return lease


def leases_from(request: web.Request) -> MultiLease:
    """
    The leases that a handler under `synchronized` with several names has; as `lease_from`.

    Raises:
        RuntimeError: the handler of this request is not under a lock of several names.
    """
    lease = request.get(_LEASE)
    if isinstance(lease, Lease):
        raise RuntimeError("the handler of this request has a lease of one name: ask lease_from(request) for it")
    if not isinstance(lease, MultiLease):
        raise RuntimeError(_NO_LEASE)
    return lease


@web.middleware
async def problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    """
    Answer errors of aiolock: 409 when a wait has ended, 503 when Redis failed or a lock was lost.

    A response that has begun is cut off instead, so that its client sees that it is not whole.
    """
    try:
        return await handler(request)
    except ERRORS as error:
        problem = None if _has_begun(request) else problem_of(error)
        if problem is None:
            raise
        raise LockProblem(problem) from error


def synchronized(
    key: Key,
    *more: Key,
    of: Maker | None = None,
    wait: Duration | None = 0,
    lease: Duration | None = None,
    status: int = CONFLICT,
) -> Callable[[HandlerOrMethod], HandlerOrMethod]:
    """
    Decorate a handler, or a method of a `web.View` or another class, to run under a lock of the request.

    *key* is a template of the path's variables, ``"order:{order_id}"``, as they are in the path, so that ``7`` and
    ``07`` are two locks; or a function of the request that returns the name. With *more* keys, or a function that
    returns several names, it runs under all of them, as `LockClient.multi` does. *of* makes something else than a lock
    of the client and a name: ``of=lambda locks, name: locks.read_write_lock(name).read``.

    *wait* and *lease* (seconds) as in `AsyncRLock.try_lock`. The lock is released when the handler returns, and so
    before its response leaves, unless the handler itself has sent it (a stream, a WebSocket). When the lock is lost the
    handler is cancelled, once, and its client is told 503, whatever the handler returns or raises. A response that has
    begun is cut off, by the `LeaseLostError`. Cancelling, as in `AsyncRLock.hold`, leaves nothing behind.

    Raises:
        LockProblem: *status*, 409 by default, when the wait ends; 503 when Redis fails or the lock is lost.
        web.HTTPBadRequest: the request makes a name that `LockClient.lock` refuses.
        TypeError, ValueError: when decorating; the handler is no coroutine function, *key* no template of names and no
            function of the request (a bare ``@synchronized`` is given the handler), *status* no error. When called:
            the name is no string, or a bare ``@synchronized`` was given a handler without annotations.
        RuntimeError: when called; the path has no such variable, or there is no `LockClient`.
    """
    most = None if wait is None else seconds(wait, "wait", zero=True)
    length = None if lease is None else lease_seconds(lease)
    error_status(status)
    check_maker(of)
    names_of = [_function(each) if callable(each) else _template(each) for each in (key, *more)]

    def decorate(handler: HandlerOrMethod) -> HandlerOrMethod:
        if not inspect.iscoroutinefunction(handler):
            raise TypeError(f"@synchronized(key) is for coroutine functions (async def), not {handler!r}")

        @functools.wraps(handler)
        async def under_lock(*args: Any, **kwargs: Any) -> web.StreamResponse:
            request = _request_of(args)
            names = [await _awaited(name_of(request)) for name_of in names_of]
            lock, refuse = _lock(request, names if more else names[0], of), functools.partial(_refuse, request)
            locked = locked_for_handler(lock, most, length, status, refuse)
            return await _answer(request, locked, functools.partial(handler, *args, **kwargs))

        return under_lock  # type: ignore[return-value]  # It takes and gives what the handler does.

    return decorate


async def healthz(request: web.Request) -> web.Response:
    """
    A handler for readiness probes: ``app.router.add_get("/healthz", healthz)``.

    Answers within a second: 200, or 503 with a problem document that says what is wrong, for whoever looks after the
    service. It names the server: do not show it to everybody.
    """
    problem = await health_of(locks_from(request))
    if problem is None:
        return web.json_response(HEALTHY, headers=NO_STORE)
    return web.json_response(
        problem.document, status=problem.status, headers=problem.headers | NO_STORE, content_type=MEDIA_TYPE
    )


async def locks_page(request: web.Request) -> web.Response:
    """
    A handler that shows who of this process holds and waits, and for how long, to a browser; it changes nothing.

    ``app.router.add_get("/locks", operators_only(locks_page))``: it shows the names of locks, of tasks and of hosts,
    and asks nobody who they are. What is waited for here and held elsewhere, it asks Redis about.
    """
    text = await page.page_of(locks_from(request))
    return web.Response(text=text, content_type="text/html", headers=page.HEADERS)


def _lock(request: web.Request, names: Names, of: Maker | None) -> Handle:
    locks = locks_from(request)
    try:
        lock = locks._handle_of(names)
    except ValueError as refused:  # A name of another type is no request's fault.
        raise web.HTTPBadRequest(text="No lock can have the name that this request makes.") from refused
    return lock if of is None else locks._handle_of(names, of)  # Whatever that raises is no request's fault.


async def _answer(
    request: web.Request,
    locked: AbstractAsyncContextManager[Lease | MultiLease | None],
    work: Callable[[], Awaitable[web.StreamResponse]],
) -> web.StreamResponse:
    """Do *work* under the lock, unless it is refused."""
    outer = request.get(_LEASE)
    try:
        async with locked as granted:
            request[_LEASE] = outer if granted is None else granted
            return await work()
    finally:
        request[_LEASE] = outer


async def _awaited(names: Any) -> Any:
    return await names if isinstance(names, Awaitable) else names


def _note_work(request: web.Request) -> None:
    """The running task uses the client of the application, and is not to outlive it."""
    tasks, task = request.config_dict.get(_AT_WORK), asyncio.current_task()
    if tasks is not None and task is not None:
        tasks.add(task)


async def _end(tasks: "WeakSet[asyncio.Task[Any]]", within: float) -> None:
    """Cancel what aiohttp has not cancelled, and let all of it roll back before the locks are taken away."""
    running = [task for task in tasks if not task.done()]
    for task in running:
        if not task.cancelling():
            task.cancel()
    if running:
        await asyncio.wait(running, timeout=within)


def _refuse(request: web.Request, problem: Problem, error: AioLockError) -> NoReturn:
    """End the request by a problem document, or, in the midst of a response, by what makes aiohttp cut it off."""
    if _has_begun(request):
        raise error
    raise LockProblem(problem) from error


def _has_begun(request: web.Request) -> bool:
    """Whether a response is on its way; aiohttp would send another one in the midst of it."""
    return request.writer.output_size > 0


def _request_of(args: tuple[Any, ...]) -> web.Request:
    """The request, of what a handler, a method or a middleware is called with."""
    for each in args:
        if isinstance(each, web.Request):
            return each
        if isinstance(each, web.View):
            return each.request
    raise TypeError("synchronized is for handlers of aiohttp: there is no request among the arguments")


def _function(
    key: Callable[[web.Request], Names | Awaitable[Names]],
) -> Callable[[web.Request], Names | Awaitable[Names]]:
    """*key*, unless a bare ``@synchronized`` was given its handler."""
    if _is_handler(key):
        raise TypeError(
            f"a bare @synchronized has no key: write @synchronized('order:{{order_id}}'), or give a function of the"
            f" request that returns the name, and not {key!r}"
        )
    return key


def _is_handler(key: Callable[..., object]) -> bool:
    """Whether *key* says that it answers requests, or takes more than one; without annotations many do not say it."""
    try:
        signature = inspect.signature(key, eval_str=True)
    except Exception:  # It has none, or one with names that are only there for type checkers.
        return False
    try:
        signature.bind(None)
    except TypeError:
        return True
    made = signature.return_annotation
    return any(inspect.isclass(each) and issubclass(each, _ANSWERS) for each in (key, made, *get_args(made)))


def _template(template: str) -> Callable[[web.Request], str]:
    """What fills *template* with the variables of a request's path."""
    empty = dict.fromkeys(parameters_of(template), "")
    template.format_map(empty)  # Raises for a format that strings do not have.

    def name_of(request: web.Request) -> str:
        try:
            return template.format_map(request.match_info)
        except KeyError as missing:
            known = ", ".join(request.match_info) or "none"
            raise RuntimeError(f"{template!r}: the path has no variable {missing} (it has: {known})") from None

    return name_of
