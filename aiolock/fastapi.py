"""
Locks in FastAPI: a lifespan, `Locks` for endpoints, and `lock_for`, the lock of a request as a dependency.

Needs FastAPI 0.121.1 or later (the extra ``fastapi``).
"""

import enum
import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from itertools import chain
from typing import Annotated, Any, NoReturn, TypedDict
from weakref import WeakKeyDictionary

from fastapi import APIRouter, Depends, FastAPI, HTTPException, WebSocketException, routing
from fastapi.dependencies import utils
from fastapi.exceptions import RequestValidationError, WebSocketRequestValidationError
from redis.asyncio import Redis, RedisCluster
from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.websockets import WebSocket

from aiolock import AioLockError, Duration, Lease, LockClient, LockConfig, MultiLease
from aiolock._client import Maker
from aiolock._primitives.handle import Handle
from aiolock._primitives.synchronized import check_maker
from aiolock._types import lease_seconds, seconds
from aiolock._web import page
from aiolock._web.handler import locked_for_handler
from aiolock._web.health import HEALTHY, NO_STORE, health_of
from aiolock._web.key_template import parameters_of
from aiolock._web.problem import CONFLICT, ERRORS, MEDIA_TYPE, UNAVAILABLE, Problem, error_status, problem_of

__all__ = [
    "LockProblem",
    "Locks",
    "LocksState",
    "add_exception_handlers",
    "get_locks",
    "healthz",
    "lifespan",
    "lock_for",
    "locks_page",
]

_TRY_AGAIN_LATER = 1013  # The close code of WebSockets.

# In the form of pydantic's errors. Without the input: it may be what no response can carry, such as a lone surrogate.
_BAD_NAME = {"type": "value_error", "loc": ("request",), "msg": "No lock can have the name that this request makes"}
_MISSING = {"type": "missing", "msg": "Field required", "input": None}


class LocksState(TypedDict):
    """What `lifespan` adds to the state of requests: ``request.state.locks``."""

    locks: LockClient


class LockProblem(HTTPException):
    """What `lock_for` raises: a service without `add_exception_handlers` answers with the right status, too."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.status, problem.detail, problem.headers)
        self.problem = problem


def lifespan(
    redis: Redis | RedisCluster | str, *, config: LockConfig | None = None
) -> Callable[[FastAPI], AbstractAsyncContextManager[LocksState]]:
    """
    A lifespan that keeps a `LockClient`: ``FastAPI(lifespan=lifespan("redis://..."))``.

    *redis* is a URL, or a client of yours, which is not closed. Inside of a lifespan of your own, enter it and pass
    its state on: ``async with lifespan(url)(app) as state: yield {**state, "database": database}``. Starting does no
    I/O, so that a service starts without Redis. Closing releases what is still held, also while its handlers are being
    cancelled, and waits `LockConfig.release_timeout` seconds at most.

    Raises:
        TypeError: *redis* is an application: this makes a lifespan, and is none.
        TypeError, ValueError: at the start: what `LockClient` raises about *redis* and *config*.
        RuntimeError: at the start: a template of a `lock_for` names a parameter that its endpoint does not have.
    """
    if isinstance(redis, FastAPI):
        raise TypeError("lifespan makes one: FastAPI(lifespan=aiolock.fastapi.lifespan(url))")

    @asynccontextmanager
    async def keep(app: FastAPI) -> AsyncIterator[LocksState]:
        _check_templates(app)
        make = LockClient.from_url if isinstance(redis, str) else LockClient
        async with make(redis, config=config) as locks:  # type: ignore[arg-type]
            yield {"locks": locks}

    return keep


async def get_locks(connection: HTTPConnection) -> LockClient:
    """
    The client of this application; the dependency behind `Locks`, to be overridden in tests.

    Raises:
        RuntimeError: there is none, which has three usual causes.
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

# By dependency: what the schema tells of it, and which parameters its template needs.
_statuses: "WeakKeyDictionary[Callable[..., Any], int]" = WeakKeyDictionary()
_templates: "WeakKeyDictionary[Callable[..., Any], str]" = WeakKeyDictionary()


def lock_for(
    key: str | Callable[..., Any],
    *more: str | Callable[..., Any],
    of: Maker | None = None,
    wait: Duration | None = 0,
    lease: Duration | None = None,
    status: int = CONFLICT,
) -> Any:
    """
    A dependency that holds a lock while the endpoint runs, and gives its `Lease`.

    With *more* keys, or a dependency that returns several names, it holds all of them, as `LockClient.multi` does, and
    gives their `MultiLease`. *of* makes something else than a lock of the client and a name: ``of=lambda locks, name:
    locks.read_write_lock(name).read``. Then it gives what the `hold` of that does, which may be nothing.

    Write ``lease: Annotated[Lease, lock_for("order:{order_id}")]`` among the parameters of the endpoint, or put it into
    the ``dependencies=[...]`` of an endpoint or a router. *key* is a template of the endpoint's path and query
    parameters, as validated, so that ``7`` and ``07`` are one lock; or a dependency that returns the name (an
    `async def`, because a plain one costs a thread). *wait* and *lease* are in seconds, as in `AsyncRLock.try_lock`.

    The lock is released after the endpoint and before the response leaves. A client that disconnects cancels nothing;
    a shutdown that cancels the endpoint frees the lock. When the lock is lost, the endpoint is cancelled, and whatever
    it returns or raises, the answer is a 503.

    Raises:
        LockProblem: as a response: *status* when the wait ends; 503 when Redis fails or the lock is lost.
        RequestValidationError: as a response, 422: a parameter of the template is none that the endpoint would take, or
            is not there; or the name is one that `LockClient.lock` refuses. `WebSocketRequestValidationError` likewise.
        RuntimeError: the endpoint has no parameter of that name (when the `lifespan` starts, but in a mounted
            application at its first request), or the application no `lifespan`.
        TypeError, ValueError: at once, for durations, templates and statuses that cannot work.
    """
    most = None if wait is None else seconds(wait, "wait", zero=True)
    length = None if lease is None else lease_seconds(lease)
    error_status(status)
    check_maker(of)
    names_of = _names([each if callable(each) else _template(each) for each in (key, *more)])

    async def held(
        connection: HTTPConnection, locks: Locks, names: Annotated[Any, Depends(names_of)]
    ) -> AsyncIterator[Lease | MultiLease | None]:
        lock = _lock(connection, locks, names, of)
        async with locked_for_handler(lock, most, length, status, partial(_refuse, connection)) as granted:
            yield granted

    _statuses[held] = status
    return Depends(held, scope="function")


def add_exception_handlers(app: FastAPI) -> None:
    """
    Answer with problem documents (RFC 9457), and describe them in the OpenAPI schema, wherever `lock_for` is used.

    Errors of aiolock that endpoints let out are answered alike: 409 when a wait has ended, 503 when Redis failed or a
    lock was lost. A mounted application needs handlers of its own.
    """
    kinds: tuple[type[Exception], ...] = (LockProblem, *ERRORS)
    for kind in kinds:
        app.add_exception_handler(kind, _handle)
    describe = app.openapi

    def openapi() -> dict[str, Any]:
        schema = describe()
        _add_responses(schema, app)
        return schema

    app.openapi = openapi  # type: ignore[method-assign]  # As FastAPI's documentation extends the schema.


async def healthz(locks: Locks) -> JSONResponse:
    """
    An endpoint for readiness probes: ``app.add_api_route("/healthz", healthz)``.

    Answers within a second: 200, or 503 with a problem document that says what is wrong, for whoever looks after the
    service. It names the server: do not show it to everybody.
    """
    problem = await health_of(locks)
    if problem is None:
        return JSONResponse(HEALTHY, headers=NO_STORE)
    return JSONResponse(problem.document, problem.status, problem.headers | NO_STORE, MEDIA_TYPE)


async def locks_page(locks: Locks) -> HTMLResponse:
    """
    An endpoint that shows who of this process holds and waits, and for how long, to a browser; it changes nothing.

    ``app.add_api_route("/locks", locks_page, dependencies=[Depends(operators_only)])``: it shows the names of locks, of
    tasks and of hosts, and asks nobody who they are. What is waited for here and held elsewhere, it asks Redis about.
    """
    return HTMLResponse(await page.page_of(locks), headers=page.HEADERS)


def _lock(connection: HTTPConnection, locks: LockClient, names: object, of: Maker | None) -> Handle:
    try:
        lock = locks._handle_of(names)
    except ValueError as refused:
        raise _invalid(connection, [_BAD_NAME]) from refused
    return lock if of is None else locks._handle_of(names, of)  # Whatever that raises is no request's fault.


def _refuse(connection: HTTPConnection, problem: Problem, error: AioLockError) -> NoReturn:
    if isinstance(connection, WebSocket):
        raise WebSocketException(_TRY_AGAIN_LATER, problem.detail) from error
    raise LockProblem(problem) from error


def _invalid(connection: HTTPConnection, errors: Sequence[Any]) -> Exception:
    """As FastAPI itself would raise it: 422, or the close of a WebSocket."""
    return (WebSocketRequestValidationError if isinstance(connection, WebSocket) else RequestValidationError)(errors)


async def _handle(connection: Request | WebSocket, error: Exception) -> Response:
    problem = error.problem if isinstance(error, LockProblem) else problem_of(error)  # type: ignore[arg-type]
    if problem is None:
        raise error
    if isinstance(connection, WebSocket):
        await connection.close(_TRY_AGAIN_LATER, problem.detail)
    return JSONResponse(problem.document, problem.status, problem.headers, MEDIA_TYPE)


# The names.


def _names(each: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
    """A dependency that gives what *each* does: one name, or several."""
    if len(each) == 1:
        return each[0]

    async def names(**names: str) -> list[str]:
        return list(names.values())

    parameters = [
        inspect.Parameter(f"name_{number}", inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[str, Depends(name)])
        for number, name in enumerate(each)
    ]
    vars(names)["__signature__"] = inspect.Signature(parameters)  # By which FastAPI knows what it depends on.
    return names


def _template(template: str) -> Callable[[HTTPConnection], Any]:
    """A dependency that fills *template* with the validated parameters of the request's endpoint."""
    parameters = parameters_of(template)

    async def name(connection: HTTPConnection) -> str:
        values = {parameter: _parameter(connection, parameter, template) for parameter in parameters}
        return template.format_map(values)

    _templates[name] = template
    return name


def _parameter(connection: HTTPConnection, name: str, template: str) -> object:
    for field, received in _parameters(connection):
        if field.name == name:
            values, errors = utils.request_params_to_args([field], received)
            if errors:
                raise _invalid(connection, errors)
            if (value := values[name]) is None:
                raise _invalid(connection, [_MISSING | {"loc": ("query", field.alias)}])
            return value.value if isinstance(value, enum.Enum) else value
    known = {field.name for field, _ in _parameters(connection)}
    raise _unknown(name, template, connection.scope["route"], known)


def _parameters(connection: HTTPConnection) -> Iterator[tuple[Any, Mapping[str, Any]]]:
    """The path and query parameters that the endpoint of this request takes, and where their values are."""
    for dependant in _walk(_dependant_of(connection)):
        yield from ((field, connection.path_params) for field in dependant.path_params)
        yield from ((field, connection.query_params) for field in dependant.query_params)


def _unknown(name: str, template: str, route: Any, known: set[str]) -> RuntimeError:
    return RuntimeError(
        f"{template!r}: {name!r} is no path or query parameter, with a type, of {route.path} (it has: "
        f"{', '.join(sorted(known)) or 'none'}); give lock_for a dependency that returns the name"
    )


def _check_templates(app: FastAPI) -> None:
    """Raise if an endpoint lacks a parameter that a template names, which all its requests would fail by."""
    for route in _routes_of(app):
        fields = chain.from_iterable((*each.path_params, *each.query_params) for each in _walk(route.dependant))
        known = {field.name for field in fields}
        for template in (_templates[call] for call in _calls(route.dependant) if call in _templates):
            for name in parameters_of(template) - known:
                raise _unknown(name, template, route, known)


# What FastAPI calls a dependant, the parameters and dependencies of a function, has no public type. Nor has what newer
# versions, which keep the route of a router as it is, call its effective context: what including it made of it.

_contexts_of: Callable[[Any], Iterator[Any]] = getattr(routing, "iter_route_contexts", iter)
_context_of: Callable[[Any], Any] = getattr(routing, "_get_scope_effective_route_context", lambda scope: None)


def _dependant_of(connection: HTTPConnection) -> Any:
    """What the endpoint of this request takes, with the prefix and the dependencies of the routers around it."""
    route, context = connection.scope["route"], _context_of(connection.scope)
    effective = context if context is not None and context.original_route is route else route
    return effective.dependant


def _routes_of(app: FastAPI) -> Iterator[Any]:
    """The routes of *app* that FastAPI resolves dependencies for, with what the routers around them add."""
    # In 0.137.2 the context of a WebSocket has no dependant, and only refers to the route that including it made.
    routes = (getattr(each, "starlette_route", None) or each for each in _contexts_of(app.routes))
    return (route for route in routes if getattr(route, "dependant", None) is not None)


def _walk(dependant: Any) -> Iterator[Any]:
    """*dependant* and what it depends on."""
    yield dependant
    for each in dependant.dependencies:
        yield from _walk(each)


def _calls(dependant: Any) -> Iterator[Callable[..., Any]]:
    """What FastAPI calls for *dependant* and what it depends on."""
    return (each.call for each in _walk(dependant) if each.call is not None)


# The schema.


def _add_responses(schema: dict[str, Any], app: FastAPI) -> None:
    for route in _routes_of(app):
        for status in _statuses_of(route):
            for method in getattr(route, "methods", None) or ():  # A WebSocket has none.
                operation = schema.get("paths", {}).get(route.path_format, {}).get(method.lower())
                if operation is not None:
                    operation["responses"].setdefault(str(status), _described(status))


def _statuses_of(route: Any) -> set[int]:
    """What `lock_for` may answer with for *route*."""
    found = {_statuses[call] for call in _calls(route.dependant) if call in _statuses}
    return found | {UNAVAILABLE} if found else found


def _described(status: int) -> dict[str, Any]:
    text = "The lock cannot be had, or was lost" if status == UNAVAILABLE else "Somebody else is working on this"
    properties = {"type": _STRING, "title": _STRING, "status": {"type": "integer"}, "detail": _STRING}
    return {
        "description": text,
        "headers": {"Retry-After": {"description": "Seconds", "schema": {"type": "integer"}}},
        "content": {MEDIA_TYPE: {"schema": {"type": "object", "title": "Problem", "properties": properties}}},
    }


_STRING = {"type": "string"}


# The names above that FastAPI does not promise.


def _missing_names() -> list[str]:
    """Those that this version does not have."""
    inner, outer = APIRouter(), APIRouter()
    inner.add_api_route("/", lambda: None)
    outer.include_router(inner)
    dependant = getattr(inner.routes[0], "dependant", None)
    needed: list[tuple[object, str]] = [(utils, "request_params_to_args"), (inner.routes[0], "dependant")]
    needed += [(dependant, name) for name in ("call", "dependencies", "path_params", "query_params")]
    if not isinstance(outer.routes[0], routing.APIRoute):
        needed += [(routing, "iter_route_contexts"), (routing, "_get_scope_effective_route_context")]
        needed += [(each, name) for each in _contexts_of(outer.routes) for name in ("original_route", "dependant")]
    return [name for owner, name in needed if not hasattr(owner, name)]


if _missing := ", ".join(dict.fromkeys(_missing_names())):
    raise ImportError(
        f"aiolock.fastapi does not fit this version of FastAPI, which lacks {_missing}: install another version, or a "
        "newer aiolock-redis"
    )
