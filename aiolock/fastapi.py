"""
Locks in FastAPI: a lifespan, `Locks` for endpoints, and `lock_for`, a dependency that locks during a request.

Needs FastAPI 0.121.1 or later (the extra ``fastapi``).
"""

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Annotated, Any, NoReturn, TypedDict

from fastapi import Depends, FastAPI, Header, HTTPException, WebSocketException
from redis.asyncio import Redis, RedisCluster
from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.websockets import WebSocket

import aiolock._origin  # noqa: F401 - refuses a folder that another package shares
from aiolock import AioLockError, Duration, Lease, LockClient, LockConfig, MultiLease
from aiolock._client import Maker
from aiolock._fastapi.idempotency import (
    IDEMPOTENT,
    AnsweredError,
    IdempotentRoute,
    endpoint_of,
    fingerprint_of,
    outer_stack_of,
    request_of,
    runs_of,
)
from aiolock._fastapi.inside import route_of
from aiolock._fastapi.names import Template, check_endpoints, check_headers, depend, invalid, leave_out, refuse_to_yield
from aiolock._fastapi.schema import add_responses, refusals_of
from aiolock._primitives.handle import Handle
from aiolock._primitives.section import Conduct, Section
from aiolock._primitives.synchronized import check_maker
from aiolock._types import BlockRelease, OnUnavailable
from aiolock._web import page
from aiolock._web.client import maker_of
from aiolock._web.handler import HandlerBlock
from aiolock._web.health import HEALTHY, NO_STORE, health_of
from aiolock._web.idempotency import (
    DAY,
    HEADER,
    BadRequestError,
    Keeping,
    Run,
    checked_caller,
    key_of,
    name_of,
    refusals,
)
from aiolock._web.problem import (
    CONFLICT,
    ERRORS,
    MEDIA_TYPE,
    OUT_OF_SERVICE,
    Problem,
    busy,
    error_status,
    problem_of,
)

__all__ = [
    "IdempotentRoute",
    "LockProblem",
    "Locks",
    "LocksState",
    "add_exception_handlers",
    "get_locks",
    "healthz",
    "idempotent",
    "lifespan",
    "lock_for",
    "locks_page",
]

# The argument of our dependencies that is the client.
_LOCKS = "locks"
# A close code of WebSockets.
_TRY_AGAIN_LATER = 1013

# In the form of pydantic's errors, without the input: that may be text which no response can carry (a lone surrogate).
_BAD_NAME = {"type": "value_error", "loc": ("request",), "msg": "No lock can have the name that this request makes"}


class LocksState(TypedDict):
    """The state that `lifespan` adds to requests: ``request.state.locks``."""

    locks: LockClient


class LockProblem(HTTPException):
    """The error of `lock_for`; a service without `add_exception_handlers` answers with the right status, too."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.status, problem.detail, problem.headers)
        self.problem = problem


def lifespan(
    redis: Redis | RedisCluster | str, *, config: LockConfig | None = None
) -> Callable[[FastAPI], AbstractAsyncContextManager[LocksState]]:
    """
    A lifespan that keeps a `LockClient`: ``FastAPI(lifespan=lifespan("redis://..."))``.

    *redis* is a URL, or a client of yours, which is not closed. If you have a lifespan of your own, enter this one in
    it, and pass its state on: ``async with lifespan(url)(app) as state: yield {**state, "database": database}``. The
    start does no I/O, so that a service starts without Redis. Closing releases the locks that are still held, even
    while handlers are being cancelled, and waits `LockConfig.release_timeout` seconds at most.

    Raises:
        TypeError: *redis* is an application (this function makes a lifespan), or it is, or makes, a `LockClient`.
        TypeError, ValueError: at the start: *redis* or *config* is not valid, as in `LockClient`.
        RuntimeError: at the start: a template of a `lock_for` names a parameter that its endpoint does not have, an
            endpoint with `lock_for` or `idempotent` yields its response, or one with `idempotent` has another class of
            route than `IdempotentRoute`.
    """
    if isinstance(redis, FastAPI):
        raise TypeError("lifespan makes one: FastAPI(lifespan=aiolock.fastapi.lifespan(url))")
    make = maker_of(redis, config, 'lifespan("redis://...")')

    @asynccontextmanager
    async def keep(app: FastAPI) -> AsyncIterator[LocksState]:
        check_endpoints(app)
        leave_out(app, get_locks)
        async with make() as locks:
            yield {"locks": locks}

    return keep


async def get_locks(connection: HTTPConnection) -> LockClient:
    """
    The client of this application; tests may override this dependency, which is behind `Locks`.

    Raises:
        RuntimeError: the application has no client; the message names three usual causes.
    """
    locks = getattr(connection.state, "locks", None)
    if not isinstance(locks, LockClient):
        raise RuntimeError(
            "there is no LockClient in the state of this request. Either the application has no aiolock lifespan "
            "(FastAPI(lifespan=aiolock.fastapi.lifespan(url)); a lifespan of your own must yield its state), or a test "
            "uses TestClient(app) without `with`, or httpx.ASGITransport, which runs no lifespan"
        )
    return locks


Locks = Annotated[LockClient, Depends(get_locks)]
"""The application's `LockClient`, as the parameter of an endpoint or a dependency."""

# The header of an idempotent request, for the schema.
_Key = Annotated[str | None, Header(alias=HEADER)]


def lock_for(
    key: str | Callable[..., Any],
    *more: str | Callable[..., Any],
    of: Maker | None = None,
    wait: Duration | None = 0,
    lease: Duration | None = None,
    status: int = CONFLICT,
    release: BlockRelease | None = None,
    on_unavailable: OnUnavailable = "refuse",
) -> Any:
    """
    A dependency that holds a lock while the endpoint runs; its value is the `Lease`.

    With *more* keys, or a dependency that returns several names, it holds all these locks, as `LockClient.multi` does,
    and its value is the `MultiLease`. *of* is a function of the client and a name that makes another primitive:
    ``of=lambda locks, name: locks.read_write_lock(name).read``. Then the value is that of the primitive's `hold`, which
    may be ``None``.

    Write ``lease: Annotated[Lease, lock_for("order:{order_id}")]`` among the parameters of the endpoint, or put it into
    the ``dependencies=[...]`` of an endpoint or a router. *key* is a template of the endpoint's path and query
    parameters, as validated, so that ``7`` and ``07`` are one lock; or a dependency that returns the name (an
    `async def`, because a plain one costs a thread). *wait* and *lease* are in seconds, as in `AsyncRLock.try_lock`.

    The lock is released after the endpoint and before the response leaves. A client that disconnects cancels nothing; a
    shutdown that cancels the endpoint frees the lock. If the lock is lost, the endpoint is cancelled, and the answer is
    a 503, even if the endpoint returns or raises something else. With *release* ``"behind"`` the response may be first.

    With *on_unavailable* ``"run"``, endpoints run without the lock while Redis fails, and the value is ``None``; but
    not while another request of this process has the lock.

    Raises:
        LockProblem: as a response: *status* when the wait ends; 503 when Redis fails or the lock is lost.
        RequestValidationError: as a response, 422: a parameter of the template is missing, or the endpoint would not
            accept it; or `LockClient.lock` refuses the name. For a WebSocket, `WebSocketRequestValidationError`.
        RuntimeError: the endpoint has no parameter of that name, or yields its response (found when the `lifespan`
            starts, in a mounted application at its first request); or the application has no `lifespan`.
        ValueError: when called: a parameter of the template is a set, or has no text but an address.
        TypeError, ValueError: at once, for durations, templates, statuses and words that cannot work.
    """
    conduct = Conduct.of(wait, lease, release, on_unavailable)
    error_status(status)
    check_maker(of)
    keys = {f"name_{number}": each if callable(each) else Template(each) for number, each in enumerate((key, *more))}

    async def held(connection: HTTPConnection, **given: Any) -> Lease | MultiLease | None:
        refuse_to_yield(route_of(connection).path, connection.scope["endpoint"])
        check_headers(connection)
        locks = await _locks_of(connection, given)
        names = [each.name(connection) if isinstance(each, Template) else given[name] for name, each in keys.items()]
        lock = _lock(connection, locks, names if more else names[0], of)
        block = HandlerBlock(Section(lock, conduct), status, partial(_refuse, connection))
        return await outer_stack_of(connection).enter_async_context(block)

    depend(held, {_LOCKS: get_locks} | keys)
    refusals_of[held] = [busy(status), *OUT_OF_SERVICE]
    return Depends(held, scope="function")


def idempotent(
    caller: Callable[..., Any] | None,
    *,
    keep: Duration = DAY,
    required: bool = True,
    on_unavailable: OnUnavailable = "refuse",
) -> Any:
    """
    A dependency that runs an endpoint once for each ``Idempotency-Key``; put it into ``dependencies=``.

    The first request with a key runs the endpoint. Its status, headers and body answer all later requests with the same
    key, body, path and query, for *keep* seconds, with the header ``Idempotent-Replayed: true``. Each endpoint has its
    own keys, and so has each caller: *caller* is a dependency that returns the id of the request's sender, a `str` or
    an `int`. ``None`` means that everybody who knows a key may see its response. If *required* is false, a request
    without a key is carried out.

    Exceptions, including `HTTPException`, and responses with a status of 500 or more are not kept: the next request
    with that key runs the endpoint again. If the process dies, this happens after `LockConfig.lease` at most.
    Background tasks run once. Cookies are not replayed. If a response takes more than 64 KiB, only the fact that there
    was one is kept. The endpoints need routes of the class `IdempotentRoute`. With *on_unavailable* ``"run"``, requests
    are carried out while Redis fails, and their responses are not kept.

    Raises:
        LockProblem: as a response: 400 if the key is missing or malformed; 409 while the first request is carried out,
            or if its response was too large; 422 if the first request was a different one; 503 when Redis fails or the
            lock is lost.
        RuntimeError: the endpoint has another class of route, or is a WebSocket (found when the `lifespan` starts, in a
            mounted application at its first request); or it returned a stream or a file.
        TypeError: *caller* returned neither a `str` nor an `int`.
        TypeError, ValueError: at once, for a *keep* that is not a duration, or another *on_unavailable*.
    """
    keeping = Keeping.of(keep, on_unavailable)

    async def run(connection: HTTPConnection, key: _Key = None, **given: Any) -> None:
        request = request_of(connection)
        check_headers(request)
        locks, runs = await _locks_of(request, given), runs_of(request)
        found = _key_of(request, required=required)
        if found is None:
            return
        owner = None if caller is None else checked_caller(given["caller"])
        name = name_of(endpoint_of(request), owner, found)
        first = Run(locks, name, await fingerprint_of(request), keeping, partial(_refuse, request))
        answer = await outer_stack_of(request).enter_async_context(first)
        if answer is not None:
            raise AnsweredError(answer)
        runs.append(first)

    depend(run, {_LOCKS: get_locks} | ({} if caller is None else {"caller": caller}))
    IDEMPOTENT.add(run)
    refusals_of[run] = refusals(required=required)
    return Depends(run, scope="function")


def add_exception_handlers(app: FastAPI) -> None:
    """
    Answer errors with problem documents (RFC 9457), and describe them in the OpenAPI schema of endpoints with
    `lock_for` or `idempotent`.

    Errors of aiolock that endpoints raise are answered in the same way: 409 when a wait has ended, 503 when Redis
    failed or a lock was lost. A mounted application needs handlers of its own.
    """
    kinds: tuple[type[Exception], ...] = (LockProblem, *ERRORS)
    for kind in kinds:
        # Starlette's types know no handler of both kinds of connection.
        app.add_exception_handler(kind, _handle)  # type: ignore[arg-type]
    describe = app.openapi

    def openapi() -> dict[str, Any]:
        schema = describe()
        add_responses(schema, app)
        return schema

    app.openapi = openapi  # type: ignore[method-assign]


async def healthz(locks: Locks) -> JSONResponse:
    """
    An endpoint for readiness probes: ``app.add_api_route("/healthz", healthz)``.

    Answers within a second: 200, or 503 with a problem document that says what is wrong, for operators. It names
    the server: do not show it to everybody.
    """
    problem = await health_of(locks)
    if problem is None:
        return JSONResponse(HEALTHY, headers=NO_STORE)
    return JSONResponse(problem.document, problem.status, problem.headers | NO_STORE, MEDIA_TYPE)


async def locks_page(locks: Locks) -> HTMLResponse:
    """
    An endpoint with a page of the tasks of this process that hold a lock or wait for one; it changes nothing.

    ``app.add_api_route("/locks", locks_page, dependencies=[Depends(operators_only)])``: the page names the process, its
    host, the server (without user and password), locks, tasks and owners, and has no login of its own. If tasks wait
    here for a lock that another process holds, the page asks Redis for the holder.
    """
    return HTMLResponse(await page.page_of(locks), headers=page.HEADERS)


async def _locks_of(connection: HTTPConnection, given: dict[str, Any]) -> LockClient:
    """The client for a dependency to which FastAPI has *given* it, or not: see `leave_out`."""
    if _LOCKS not in given:
        return await get_locks(connection)
    locks = given[_LOCKS]
    if not isinstance(locks, LockClient):
        raise TypeError(f"an override of get_locks must return a LockClient, not {locks!r}")
    return locks


def _key_of(request: Request, *, required: bool) -> str | None:
    try:
        return key_of(request.headers.getlist(HEADER), required=required)
    except BadRequestError as bad:
        raise LockProblem(bad.problem) from bad


def _lock(connection: HTTPConnection, locks: LockClient, names: object, of: Maker | None) -> Handle:
    try:
        lock = locks._handle_of(names)
    except ValueError as refused:
        raise invalid(connection, [_BAD_NAME]) from refused
    # Outside of the `try`: an error of *of* is not the request's fault.
    return lock if of is None else locks._handle_of(names, of)


def _refuse(connection: HTTPConnection, problem: Problem, error: AioLockError | None) -> NoReturn:
    if isinstance(connection, WebSocket):
        raise WebSocketException(_TRY_AGAIN_LATER, problem.detail) from error
    raise LockProblem(problem) from error


async def _handle(connection: Request | WebSocket, error: Exception) -> Response | None:
    problem = error.problem if isinstance(error, LockProblem) else problem_of(error)  # type: ignore[arg-type]
    if problem is None:
        raise error
    if isinstance(connection, WebSocket):
        await connection.close(_TRY_AGAIN_LATER, problem.detail)
        return None
    return JSONResponse(problem.document, problem.status, problem.headers, MEDIA_TYPE)


for _name in __all__:
    # Users import these classes from here.
    if inspect.isclass(_public := globals()[_name]):
        _public.__module__ = __name__
