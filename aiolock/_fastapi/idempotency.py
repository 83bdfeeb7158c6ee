"""Requests of FastAPI that are carried out once: the route that keeps responses and repeats them."""

from collections.abc import Callable, Coroutine, Iterable
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import quote
from weakref import WeakSet

from fastapi import HTTPException
from fastapi.routing import APIRoute, APIWebSocketRoute
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Host, Match, Mount
from starlette.types import Scope

from aiolock._fastapi.inside import calls_of, declared, dependant_of, route_of, stack_of
from aiolock._web.idempotency import HEADER, REPLAYED, Answer, Run, fingerprint, kept_headers

_RUN = "aiolock.idempotency"
_STACK = "aiolock.stack"
_NO_WEBSOCKETS = "`idempotent` is for requests, and not for WebSockets"
_NO_ROUTE = (
    "`idempotent` needs a route that keeps responses. Before the endpoint, write "
    "app.router.route_class = IdempotentRoute, or APIRouter(route_class=IdempotentRoute)"
)
_TWICE = "it has two dependencies of `idempotent`, perhaps one of its router: one is enough, so remove the other"

# The dependencies that `idempotent` has made.
IDEMPOTENT: "WeakSet[Callable[..., Any]]" = WeakSet()


class AnsweredError(HTTPException):
    """The *answer* of an earlier request, with which `IdempotentRoute` answers this one; traces show no failure."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status, detail="")
        self.answer = answer


class IdempotentRoute(APIRoute):
    """
    The route of endpoints with `idempotent`: ``APIRouter(route_class=IdempotentRoute)``, or, before its endpoints,
    ``app.router.route_class = IdempotentRoute``.

    Endpoints without `idempotent` are as in any other route.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler, which keeps and repeats the responses of `idempotent` endpoints."""
        handle = super().get_route_handler()

        async def once(request: Request) -> Response:
            runs: list[Run] = []
            request.scope[_RUN] = runs
            # Entered before all dependencies, it is left after them: one of the scope "function" may commit, and fail.
            outer = stack_of(request)
            request.scope[_STACK] = (outer, await outer.enter_async_context(AsyncExitStack()))
            if HEADER.lower() in request.headers and not IDEMPOTENT.isdisjoint(calls_of(dependant_of(request))):
                # A form would be read without it, and the fingerprint is that of the body.
                await _read(request)
            try:
                response = await handle(request)
            except AnsweredError as replayed:
                return _response_of(replayed.answer)
            for run in runs:
                run.keep(_answer_of(request, response))
            return response

        return once


async def _read(request: Request) -> None:
    """Let *request* keep its body; if the client has gone in the middle of it, the end is a 400, as in FastAPI."""
    try:
        await request.body()
    except ClientDisconnect as gone:
        raise HTTPException(400, "There was an error parsing the body") from gone


def check_route(route: Any) -> None:
    """Raise if *route*, an application's, is one of an endpoint with `idempotent`, and keeps no responses."""
    kind, ours = declared(route), IDEMPOTENT.intersection(calls_of(route.dependant))
    if len(ours) > 1:
        raise RuntimeError(f"{route.path}: {_TWICE}")
    if ours and not isinstance(kind, IdempotentRoute):
        raise RuntimeError(f"{route.path}: {_NO_WEBSOCKETS if isinstance(kind, APIWebSocketRoute) else _NO_ROUTE}")


def request_of(connection: HTTPConnection) -> Request:
    """*connection*, if it is a request; raises if it is a WebSocket."""
    if not isinstance(connection, Request):
        raise RuntimeError(f"{connection.scope['route'].path}: {_NO_WEBSOCKETS}")
    return connection


def outer_stack_of(connection: HTTPConnection) -> AsyncExitStack:
    """The stack that `lock_for` and `idempotent` use: an `IdempotentRoute` has one around all other dependencies."""
    stack = stack_of(connection)
    # The scope may be that of another request, or a copy of it.
    around, inner = connection.scope.get(_STACK, (None, stack))
    return inner if around is stack else stack


def runs_of(request: Request) -> list[Run]:
    """
    The list for the run whose response the route will keep.

    Raises if the request has another class of route, or a run already.
    """
    runs: list[Run] | None = request.scope.get(_RUN)
    if runs is None or runs:
        raise RuntimeError(f"{endpoint_of(request)}: {_TWICE if runs else _NO_ROUTE}")
    return runs


def endpoint_of(request: Request) -> str:
    """The name of the endpoint, which has keys of its own, as has each host, if `app.host` routes by it."""
    routed = _routes_host(request.scope["router"].routes, request.scope)
    host = request.url.hostname if routed else ""
    path = getattr(dependant_of(request), "path", None) or route_of(request).path
    return f"{request.method} {host}{request.scope.get('root_path', '')}{path}"


def _routes_host(routes: Iterable[BaseRoute], scope: Scope) -> bool:
    """Whether a `Host` among *routes* takes the host of the request, which other routes may have taken before."""
    return any(
        (isinstance(each, Host) and each.matches(scope)[0] is not Match.NONE)
        or (isinstance(each, Mount) and _routes_host(each.routes, scope))
        for each in routes
    )


async def fingerprint_of(request: Request) -> str:
    """The fingerprint of the request. It is not made of `request.url`, which depends on the client's ``Host``."""
    path, query = quote(request.scope["path"]), request.scope["query_string"].decode("latin-1")
    return fingerprint(request.method, f"{path}?{query}" if query else path, await request.body())


def _answer_of(request: Request, response: Response) -> Answer:
    body = getattr(response, "body", None)
    if not isinstance(body, bytes | memoryview):
        raise RuntimeError(
            f"{endpoint_of(request)}: its response cannot be kept, because it is a {type(response).__name__}, which is "
            "sent piece by piece; return a response with a body, or use no `idempotent`"
        )
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in response.raw_headers]
    return Answer(response.status_code, kept_headers(headers), bytes(body))


def _response_of(answer: Answer) -> Response:
    response = Response(answer.body, answer.status)
    headers = [*answer.headers, (REPLAYED, "true")]
    response.raw_headers += [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    return response
