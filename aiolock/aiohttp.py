"""
Locks in aiohttp: `setup`, `LOCKS`, and `synchronized`, a decorator that runs handlers under a lock.

Needs aiohttp 3.10.11 or later (the extra ``aiohttp``).
"""

import asyncio
import functools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, NoReturn, TypeVar
from weakref import WeakSet

from aiohttp import web
from aiohttp.typedefs import Handler
from redis.asyncio import Redis, RedisCluster

import aiolock._origin  # noqa: F401 - refuses a folder that another package shares
from aiolock import AioLockError, ClientClosedError, Duration, Lease, LockClient, LockConfig, MultiLease
from aiolock._aiohttp.idempotency import answer_of, endpoint_of, fingerprint_of, refuse_to_begin, response_of, whole
from aiolock._aiohttp.names import Key, Names, check_caller, name_maker, request_key
from aiolock._client import Maker
from aiolock._primitives.handle import Handle
from aiolock._primitives.section import Conduct, Section
from aiolock._primitives.synchronized import check_coroutine_function, check_maker
from aiolock._types import BlockRelease, OnUnavailable, seconds
from aiolock._web import page
from aiolock._web.client import maker_of
from aiolock._web.handler import HandlerBlock
from aiolock._web.health import HEALTHY, NO_STORE, health_of
from aiolock._web.idempotency import DAY, HEADER, BadRequestError, Caller, Keeping, Run, checked_caller, key_of, name_of
from aiolock._web.problem import CONFLICT, ERRORS, MEDIA_TYPE, Problem, error_status, problem_of

__all__ = [
    "LOCKS",
    "LockProblem",
    "healthz",
    "idempotent",
    "lease_from",
    "leases_from",
    "locks_from",
    "locks_page",
    "problems",
    "setup",
    "synchronized",
]

LOCKS: web.AppKey[LockClient] = web.AppKey("LOCKS", LockClient)
"""The key of the application's client: ``request.app[LOCKS]``."""

_AT_WORK: web.AppKey["WeakSet[asyncio.Task[Any]]"] = web.AppKey("AT_WORK", WeakSet)
_LEASE = request_key("LEASE")

_NO_LEASE = (
    "the handler of this request has no lease: it is not decorated with `synchronized`, or its primitive has no "
    "leases, or it runs without its lock because Redis fails"
)

CallerOf = Callable[[web.Request], Caller | Awaitable[Caller]]

HandlerOrMethod = TypeVar("HandlerOrMethod", bound=Callable[..., Awaitable[web.StreamResponse]])


class LockProblem(web.HTTPError):
    """The error of `synchronized` and `problems`: a problem document of RFC 9457."""

    def __init__(self, problem: Problem) -> None:
        self.status_code: int = problem.status
        body = json.dumps(problem.document)
        super().__init__(headers=problem.headers, text=body, content_type=MEDIA_TYPE)
        self.problem: Problem = problem


def setup(app: web.Application, redis: Redis | RedisCluster | str, *, config: LockConfig | None = None) -> None:
    """
    Keep a `LockClient` in ``app[LOCKS]`` while *app* runs, and answer errors of aiolock with `problems`.

    *redis* is a URL, or a client of yours, which is not closed. If a test has put a client into ``app[LOCKS]`` before
    the start, that one is used. Sub-applications use the client of their parent application. Starting does no I/O. When
    *app* ends, handlers that use the client (through `synchronized` or `locks_from`) and still run are cancelled, even
    those whose HTTP clients have disconnected, and have `LockConfig.release_timeout` to roll back under their locks.
    Closing takes as long again at most, and releases the locks that are still held. *app* cannot be started again.

    Raises:
        TypeError, ValueError: *redis* or *config* is not valid, as in `LockClient`.
        RuntimeError: `setup` was called for *app* before. At the start: *app* was started before, and has ended.
    """
    if not isinstance(app, web.Application):
        raise TypeError(f"setup needs the application first, as in setup(app, redis), not {type(app).__name__}")
    if _AT_WORK in app:
        raise RuntimeError("aiolock.aiohttp.setup was called for this application before")
    settings = config or LockConfig()
    client = maker_of(redis, config, 'setup(app, "redis://...")')()
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
    app.on_response_prepare.append(refuse_to_begin)


async def _enter(stack: AsyncExitStack, client: LockClient) -> None:
    try:
        await stack.enter_async_context(client)
    except ClientClosedError as closed:
        raise RuntimeError("this application and its LockClient have ended: make a new one to start") from closed


def locks_from(request: web.Request) -> LockClient:
    """
    The client of the request's application or of its parent application.

    `setup` closes the client only after the calling task has ended, or has had its time to end.

    Raises:
        RuntimeError: the application has no client.
    """
    try:
        locks = request.config_dict[LOCKS]
    except KeyError:
        raise RuntimeError("this application has no LockClient: call aiolock.aiohttp.setup(app, url)") from None
    _note_work(request)
    return locks


def lease_from(request: web.Request) -> Lease:
    """
    The lease of a handler under `synchronized`, for its token or its `Lease.check`.

    With several decorators, this is the lease of the innermost one.

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
    The leases of a handler under `synchronized` with several names; see `lease_from`.

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

    A response that has begun is cut off instead, so that its client sees that the response is not complete.
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
    release: BlockRelease | None = None,
    on_unavailable: OnUnavailable = "refuse",
) -> Callable[[HandlerOrMethod], HandlerOrMethod]:
    """
    Decorate a handler, or a method of a `web.View` or another class, to run under a lock of the request.

    *key* is a template of the path's variables, ``"order:{order_id}"``, as they are in the path, so that ``7`` and
    ``07`` are two locks; or a function of the request that returns the name. With *more* keys, or a function that
    returns several names, the handler runs under all these locks, as with `LockClient.multi`. *of* is a function of the
    client and a name that makes another primitive: ``of=lambda locks, name: locks.read_write_lock(name).read``.

    *wait* and *lease* (seconds) are those of `AsyncRLock.try_lock`. The lock is released when the handler returns, and
    so before its response leaves, unless the handler itself has sent it (a stream, a WebSocket). If the lock is lost,
    the handler is cancelled, once, and the answer is a 503, even if the handler returns or raises something else. A
    response that has begun is cut off, by the `LeaseLostError`. Cancelling leaves nothing behind, as in
    `AsyncRLock.hold`. With *release* ``"behind"`` the response may arrive before the release does.

    With *on_unavailable* ``"run"``, handlers run without the lock, and so without a lease, while Redis fails; but not
    while another request of this process has the lock.

    Raises:
        LockProblem: *status*, 409 by default, when the wait ends; 503 when Redis fails or the lock is lost.
        web.HTTPBadRequest: `LockClient.lock` refuses the name that the request makes.
        TypeError, ValueError: when decorating: the handler is no coroutine function, *key* is neither a template of
            names nor a function of the request (a bare ``@synchronized`` gets the handler as *key*), *status* is not
            one of an error, *on_unavailable* is another word. When called: the name is not a string, or a bare
            ``@synchronized`` got a handler without annotations.
        RuntimeError: when called: the path has no such variable, or there is no `LockClient`.
    """
    conduct = Conduct.of(wait, lease, release, on_unavailable)
    error_status(status)
    check_maker(of)
    names_of = [name_maker(each) for each in (key, *more)]

    def decorate(handler: HandlerOrMethod) -> HandlerOrMethod:
        check_coroutine_function(handler, "@synchronized(key)")

        @functools.wraps(handler)
        async def under_lock(*args: Any, **kwargs: Any) -> web.StreamResponse:
            request = _request_of(args)
            names = [await _awaited(name_of(request)) for name_of in names_of]
            lock, refuse = _lock(request, names if more else names[0], of), functools.partial(_refuse, request)
            locked = HandlerBlock(Section(lock, conduct), status, refuse)
            return await _answer(request, locked, functools.partial(handler, *args, **kwargs))

        return under_lock  # type: ignore[return-value]

    return decorate


def idempotent(
    caller: CallerOf | None, *, keep: Duration = DAY, required: bool = True, on_unavailable: OnUnavailable = "refuse"
) -> Callable[[HandlerOrMethod], HandlerOrMethod]:
    """
    Decorate a handler, or a method, to be carried out once for each ``Idempotency-Key``.

    The first request with a key runs the handler. Its status, headers and body answer all later requests with the same
    key, body, path and query, for *keep* seconds, with the header ``Idempotent-Replayed: true``. Each handler's route
    has keys of its own, and so has each caller: *caller* is a function of the request that returns the id of its
    sender, a `str` or an `int`. ``None`` means that everybody who knows a key may see its response. If *required* is
    false, a request without a key is carried out.

    Exceptions, including `web.HTTPException`, and responses with a status of 500 or more are not kept: the next request
    with that key runs the handler again. If the process dies, this happens after `LockConfig.lease` at most. Cookies
    are not replayed. If a response takes more than 64 KiB, only the fact that there was one is kept. Check the sender
    of a request before: in a middleware, or in a decorator above this one. With *on_unavailable* ``"run"``, requests
    are carried out while Redis fails, and their responses are not kept.

    Raises:
        LockProblem: 400 if the key is missing or malformed; 409 while the first request is carried out, or if its
            response was too large; 415 for a multipart body; 422 if the first request was a different one; 503 when
            Redis fails or the lock is lost.
        RuntimeError: the handler returned a stream, a file or a WebSocket, or reads ``request.content``; or there is
            no `LockClient`.
        TypeError: *caller* returned neither a `str` nor an `int`.
        TypeError, ValueError: when decorating: the handler is no coroutine function, *keep* is not a duration, or
            *on_unavailable* is another word.
    """
    keeping = Keeping.of(keep, on_unavailable)
    check_caller(caller)

    def decorate(handler: HandlerOrMethod) -> HandlerOrMethod:
        check_coroutine_function(handler, "@idempotent(caller)")

        @functools.wraps(handler)
        async def once(*args: Any, **kwargs: Any) -> web.StreamResponse:
            request = _request_of(args)
            run = await _run_of(request, caller, keeping, required=required)
            if run is None:
                return await handler(*args, **kwargs)
            async with run as answer:
                if answer is not None:
                    return response_of(answer)
                with whole(request):
                    response = await handler(*args, **kwargs)
                # aiohttp itself refuses any other result.
                if isinstance(response, web.StreamResponse):
                    run.keep(answer_of(request, response))
                return response

        return once  # type: ignore[return-value]

    return decorate


async def healthz(request: web.Request) -> web.Response:
    """
    A handler for readiness probes: ``app.router.add_get("/healthz", healthz)``.

    Answers within a second: 200, or 503 with a problem document that says what is wrong, for operators. It names
    the server: do not show it to everybody.
    """
    problem = await health_of(locks_from(request))
    if problem is None:
        return web.json_response(HEALTHY, headers=NO_STORE)
    return web.json_response(
        problem.document, status=problem.status, headers=problem.headers | NO_STORE, content_type=MEDIA_TYPE
    )


async def locks_page(request: web.Request) -> web.Response:
    """
    A handler with a page of the tasks of this process that hold a lock or wait for one; it changes nothing.

    ``app.router.add_get("/locks", operators_only(locks_page))``: the page names the process, its host, the server
    (without user and password), locks, tasks and owners, and has no login of its own. If tasks wait here for a lock
    that another process holds, the page asks Redis for the holder.
    """
    text = await page.page_of(locks_from(request))
    return web.Response(text=text, content_type="text/html", headers=page.HEADERS)


async def _run_of(request: web.Request, caller: CallerOf | None, keeping: Keeping, *, required: bool) -> Run | None:
    """The run of a request that has a key; ``None`` if it has none, and none is *required*."""
    try:
        key = key_of(request.headers.getall(HEADER, []), required=required)
        if key is None:
            return None
        target = await fingerprint_of(request)
    except BadRequestError as bad:
        raise LockProblem(bad.problem) from bad
    owner = None if caller is None else checked_caller(await _awaited(caller(request)))
    name = name_of(endpoint_of(request), owner, key)
    return Run(locks_from(request), name, target, keeping, functools.partial(_refuse, request))


def _lock(request: web.Request, names: Names, of: Maker | None) -> Handle:
    """The lock of that name; a TypeError for the name, or an error of *of*, is not the request's fault."""
    locks = locks_from(request)
    try:
        lock = locks._handle_of(names)
    except ValueError as refused:
        raise web.HTTPBadRequest(text="No lock can have the name that this request makes.") from refused
    return lock if of is None else locks._handle_of(names, of)


async def _answer(
    request: web.Request, locked: HandlerBlock, work: Callable[[], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Run *work* under the lock, unless the request is refused."""
    outer = request.get(_LEASE)
    try:
        async with locked as granted:
            request[_LEASE] = outer if granted is None and not locked.bypassed else granted
            return await work()
    finally:
        request[_LEASE] = outer


async def _awaited(names: Any) -> Any:
    return await names if isinstance(names, Awaitable) else names


def _note_work(request: web.Request) -> None:
    """Note that the running task uses the application's client, and must end before it."""
    tasks, task = request.config_dict.get(_AT_WORK), asyncio.current_task()
    if tasks is not None and task is not None:
        tasks.add(task)


async def _end(tasks: "WeakSet[asyncio.Task[Any]]", within: float) -> None:
    """Cancel the tasks that aiohttp has not cancelled, and let all roll back before their locks are released."""
    running = [task for task in tasks if not task.done()]
    for task in running:
        if not task.cancelling():
            task.cancel()
    if running:
        await asyncio.wait(running, timeout=within)


def _refuse(request: web.Request, problem: Problem, error: AioLockError | None) -> NoReturn:
    """End the request with a problem document, or, if the response has begun, with an error that cuts it off."""
    if error is not None and _has_begun(request):
        raise error
    raise LockProblem(problem) from error


def _has_begun(request: web.Request) -> bool:
    """Whether a response has begun: aiohttp would send another one in the middle of it. A mocked request sends none."""
    size: Any = request.writer.output_size
    return isinstance(size, int) and size > 0


def _request_of(args: tuple[Any, ...]) -> web.Request:
    """The request among the arguments of a handler, a method or a middleware."""
    for each in args:
        if isinstance(each, web.Request):
            return each
        if isinstance(each, web.View):
            return each.request
    raise TypeError("no request among the arguments: `synchronized` and `idempotent` are for handlers of aiohttp")
