"""The names of locks in FastAPI: templates of an endpoint's parameters, and dependencies that return a name."""

import enum
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Annotated, Any
from weakref import WeakKeyDictionary, WeakSet

from fastapi import Depends, FastAPI
from fastapi.dependencies import utils
from fastapi.exceptions import RequestValidationError, WebSocketRequestValidationError
from starlette.requests import HTTPConnection
from starlette.websockets import WebSocket

from aiolock._fastapi.idempotency import check_route
from aiolock._fastapi.inside import calls_of, dependant_of, dependants_in, fields_of, route_of, routes_of
from aiolock._web.key_template import filled, parameters_of

_MISSING = {"type": "missing", "msg": "Field required", "input": None}


class Template:
    """The *text* of a lock's name with parameters, which the endpoint of a request has validated."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.parameters = parameters_of(text)
        # The path and query parameters in the template, by the id of the endpoint's dependant, which stays alive.
        self._fields: dict[int, tuple[Any, list[Any], list[Any]]] = {}

    def name(self, connection: HTTPConnection) -> str:
        _, path, query = self._fields_of(connection)
        values = _from_path(connection, path)
        if query:
            values |= _validated(connection, query, connection.query_params)
        return filled(self.text, values)

    def _fields_of(self, connection: HTTPConnection) -> tuple[Any, list[Any], list[Any]]:
        dependant = dependant_of(connection)
        if id(dependant) not in self._fields:
            self._fields[id(dependant)] = (dependant, *self.fields_in(route_of(connection), dependant))
        return self._fields[id(dependant)]

    def fields_in(self, route: Any, dependant: Any) -> tuple[list[Any], list[Any]]:
        """The path and query parameters in the template; raises if *route* lacks one, or one has no type."""
        path, query = fields_of(dependant, "path_params"), fields_of(dependant, "query_params")
        known = {name for name, field in (query | path).items() if field.field_info.annotation is not Any}
        for name in sorted(self.parameters - known):
            raise RuntimeError(
                f"{self.text!r}: {name!r} is no path or query parameter with a type of {route.path} (it has: "
                f"{', '.join(sorted(known)) or 'none'}); write its type, as in {name}: int, since without one 7 and 07 "
                "are two locks; or give lock_for a dependency that returns the name"
            )
        only_query = self.parameters - path.keys()
        return [path[name] for name in self.parameters - only_query], [query[name] for name in only_query]


_templates: "WeakKeyDictionary[Callable[..., Any], list[Template]]" = WeakKeyDictionary()
# Endpoints that were found not to yield.
_that_return: "WeakSet[Callable[..., Any]]" = WeakSet()


def depend(held: Callable[..., Any], keys: Mapping[str, Template | Callable[..., Any]]) -> None:
    """Let FastAPI call *held* with the results of those *keys* that are dependencies, and check the templates."""
    signature = inspect.signature(held)
    own = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[Any, Depends(key)])
        for name, key in keys.items()
        if not isinstance(key, Template)
    ]
    vars(held)["__signature__"] = signature.replace(parameters=[*own, *more])
    _templates[held] = [key for key in keys.values() if isinstance(key, Template)]


def _from_path(connection: HTTPConnection, fields: list[Any]) -> dict[str, object]:
    """The values of path parameters, as `_validated` returns them, but in a fourth of the time if they are valid."""
    received, values = connection.path_params, {}
    for field in fields:
        alias = field.alias
        if alias not in received or field.field_info.validation_alias not in {None, alias}:
            return _validated(connection, fields, received)
        value, errors = field.validate(received[alias], {}, loc=("path", alias))
        if errors or value is None:
            return _validated(connection, fields, received)
        values[field.name] = value.value if isinstance(value, enum.Enum) else value
    return values


def _validated(connection: HTTPConnection, fields: list[Any], received: Mapping[str, Any]) -> dict[str, object]:
    """The values of *fields* in *received*, as the endpoint gets them."""
    values, errors = utils.request_params_to_args(fields, received)
    if not errors:
        errors = [_MISSING | {"loc": ("query", each.alias)} for each in fields if values[each.name] is None]
    if errors:
        raise invalid(connection, errors)
    return {name: value.value if isinstance(value, enum.Enum) else value for name, value in values.items()}


def check_headers(connection: HTTPConnection) -> None:
    """
    Raise if a header or cookie that the endpoint or a dependency needs is missing or not valid: it may be a credential.

    FastAPI refuses such a request as well, but only after it has called the dependencies that do not need that header.
    Validators run once more.
    """
    errors: list[Any] = []
    for each in _called(dependant_of(connection), getattr(connection.app, "dependency_overrides", {})):
        if each.header_params:
            errors += utils.request_params_to_args(each.header_params, connection.headers)[1]
        if each.cookie_params:
            errors += utils.request_params_to_args(each.cookie_params, connection.cookies)[1]
    if errors:
        raise invalid(connection, errors)


def _called(dependant: Any, overrides: Mapping[Any, Any]) -> Iterator[Any]:
    """*dependant* and its dependencies, without those that an override replaces."""
    yield dependant
    for each in dependant.dependencies:
        if each.call not in overrides:
            yield from _called(each, overrides)


def check_endpoints(app: FastAPI) -> None:
    """Raise if an endpoint lacks a parameter that a template names, yields its response, or has a wrong route."""
    for route in routes_of(app):
        check_route(route)
        ours = [_templates[call] for call in calls_of(route.dependant) if call in _templates]
        if ours:
            refuse_to_yield(route.path, route.dependant.call)
        for template in chain.from_iterable(ours):
            template.fields_in(route, route.dependant)


def refuse_to_yield(path: str, endpoint: Callable[..., Any]) -> None:
    """Raise if *endpoint* yields: FastAPI runs it while it sends the response, when our dependencies are over."""
    # An object with slots, or without a hash, is asked each time.
    with suppress(TypeError):
        if endpoint in _that_return:
            return
    if _yields(endpoint):
        raise RuntimeError(
            f"the endpoint of {path} yields its response, and FastAPI runs it when `lock_for` and `idempotent` are "
            "over, so that it would work without the lock; take the lock in a `yield` dependency of the default scope"
        )
    with suppress(TypeError):
        _that_return.add(endpoint)


def _yields(endpoint: Callable[..., Any]) -> bool:
    """Whether *endpoint* is a generator in FastAPI's eyes: a decorator's function, or what that wraps, may be one."""
    while isinstance(endpoint, partial):
        endpoint = endpoint.func
    return any(_is_generator(each) for each in (endpoint, inspect.unwrap(endpoint)))


def _is_generator(called: Callable[..., Any]) -> bool:
    """Whether *called*, a function, or an object that is called as one, yields."""
    if not inspect.isroutine(called) and not inspect.isclass(called):
        called = type(called).__call__
    functions = (called, inspect.unwrap(called))
    return any(inspect.isasyncgenfunction(each) or inspect.isgeneratorfunction(each) for each in functions)


def leave_out(app: FastAPI, call: Callable[..., Any]) -> None:
    """
    Let our dependencies in *app* be called without the value of their dependency *call*, and find it themselves.

    FastAPI spends some 10 µs of each request on a dependency, however small. In an application that has overrides, it
    looks up the dependencies of a dependency again for each request; so it passes the value of an override of *call*.
    """
    for route in routes_of(app):
        for each in dependants_in(route.dependant):
            if inspect.isfunction(each.call) and each.call in _templates:
                each.dependencies = [inner for inner in each.dependencies if inner.call is not call]


def invalid(connection: HTTPConnection, errors: Sequence[Any]) -> Exception:
    """The error that FastAPI itself would raise: 422, or the close of a WebSocket."""
    return (WebSocketRequestValidationError if isinstance(connection, WebSocket) else RequestValidationError)(errors)
