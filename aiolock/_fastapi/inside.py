"""
The private parts of FastAPI that `aiolock.fastapi` needs: the dependencies of a route, and the exit stack of a request.

FastAPI's dependant (the parameters and dependencies of a function) has no public type. Nor has the effective context of
newer versions: these leave a router's route unchanged, and the context has the result of including it. An import fails
if a version lacks a name that is used here.
"""

from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from inspect import isfunction
from typing import Any

from fastapi import APIRouter, FastAPI, routing
from fastapi.dependencies import utils
from starlette.requests import HTTPConnection

_STACK = "fastapi_function_astack"
_OF_DEPENDANTS = ("call", "dependencies", "path_params", "query_params", "header_params", "cookie_params")
_DOES_NOT_FIT = "This FastAPI lacks {}, which aiolock.fastapi needs: install another one, or a newer aiolock-redis"
_NO_ENDPOINT = (
    "{!r} has no endpoint, as it is a file of a `frontend`: `lock_for` and `idempotent` are for endpoints, so put them "
    "into the dependencies of a router that has no `frontend`, and not of the application"
)

_contexts_of: Callable[[Any], Iterator[Any]] = getattr(routing, "iter_route_contexts", iter)
_context_of: Callable[[Any], Any] = getattr(routing, "_get_scope_effective_route_context", lambda scope: None)


def route_of(connection: HTTPConnection) -> Any:
    """The route of this request; raises if FastAPI has none, as for the files of `FastAPI.frontend`."""
    route = connection.scope.get("route")
    if route is None:
        raise RuntimeError(_NO_ENDPOINT.format(connection.scope["path"]))
    return route


def dependant_of(connection: HTTPConnection) -> Any:
    """The dependant of this request's endpoint, with the prefix and the dependencies of the routers around it."""
    route, context = route_of(connection), _context_of(connection.scope)
    effective = context if context is not None and context.original_route is route else route
    return effective.dependant


def stack_of(connection: HTTPConnection) -> AsyncExitStack:
    """The stack that FastAPI closes when the endpoint has returned, before the response leaves."""
    stack = connection.scope.get(_STACK)
    if not isinstance(stack, AsyncExitStack):
        raise RuntimeError(_DOES_NOT_FIT.format(_STACK))
    return stack


def routes_of(app: FastAPI) -> Iterator[Any]:
    """The routes of *app* that have dependencies, with the additions of the routers around them."""
    # In 0.137.2 the context of a WebSocket has no dependant, and only refers to the route made by including it.
    routes = (getattr(each, "starlette_route", None) or each for each in _contexts_of(app.routes))
    return (route for route in routes if getattr(route, "dependant", None) is not None)


def declared(route: Any) -> Any:
    """The *route* of an endpoint as its own router made it, before others included that router."""
    return getattr(route, "original_route", route)


def dependants_in(dependant: Any) -> Iterator[Any]:
    """*dependant* and its dependencies."""
    yield dependant
    for each in dependant.dependencies:
        yield from dependants_in(each)


def fields_of(dependant: Any, kind: str) -> dict[str, Any]:
    """The parameters of one kind of *dependant* and its dependencies, by name; those of *dependant* come first."""
    return {field.name: field for each in reversed([*dependants_in(dependant)]) for field in getattr(each, kind)}


def calls_of(dependant: Any) -> Iterator[Callable[..., Any]]:
    """The functions that FastAPI calls for *dependant* and its dependencies; no objects, which may have no hash."""
    return (each.call for each in dependants_in(dependant) if isfunction(each.call))


def _missing_names() -> list[str]:
    """The internal names that this version lacks."""
    inner, outer = APIRouter(), APIRouter()
    inner.add_api_route("/{name}", lambda name: None)
    outer.include_router(inner)
    dependant = getattr(inner.routes[0], "dependant", None)
    needed: list[tuple[object, str]] = [(utils, "request_params_to_args"), (inner.routes[0], "dependant")]
    needed += [(dependant, name) for name in _OF_DEPENDANTS]
    needed += [(field, "field_info") for field in getattr(dependant, "path_params", ())]
    if not isinstance(outer.routes[0], routing.APIRoute):
        needed += [(routing, "iter_route_contexts"), (routing, "_get_scope_effective_route_context")]
        needed += [(each, name) for each in _contexts_of(outer.routes) for name in ("original_route", "dependant")]
    return [name for owner, name in needed if not hasattr(owner, name)]


if _missing := ", ".join(dict.fromkeys(_missing_names())):
    raise ImportError(_DOES_NOT_FIT.format(_missing))
