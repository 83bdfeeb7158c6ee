"""The OpenAPI schema of endpoints with our dependencies: the answers with which these may refuse a request."""

from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from fastapi import FastAPI

from aiolock._fastapi.inside import calls_of, routes_of
from aiolock._web.idempotency import HEADER, MISSING
from aiolock._web.problem import Problem, described

# FastAPI's description of a 422.
_NOT_VALID = "Validation Error"

# By the dependencies that `lock_for` and `idempotent` have made.
refusals_of: "WeakKeyDictionary[Callable[..., Any], Sequence[Problem]]" = WeakKeyDictionary()


def add_responses(schema: dict[str, Any], app: FastAPI) -> None:
    """Add our answers to the *schema* of *app*, and say of the key of an idempotent request whether it is required."""
    for route in routes_of(app):
        problems = [each for call in calls_of(route.dependant) for each in refusals_of.get(call, ())]
        # A WebSocket has no methods.
        for method in getattr(route, "methods", None) or ():
            operation = schema.get("paths", {}).get(route.path_format, {}).get(method.lower())
            if operation is not None:
                _add(described(problems), operation["responses"])
                if MISSING in problems:
                    _require_key(operation.get("parameters", []))


def _add(ours: dict[str, dict[str, Any]], responses: dict[str, dict[str, Any]]) -> None:
    """Add *ours* to *responses*, beside what FastAPI says of requests that are not valid; what users say stays."""
    for status, response in ours.items():
        there = responses.setdefault(status, response)
        if there.get("description") == _NOT_VALID:
            text, content = f"{_NOT_VALID}\n\n{response['description']}", there.get("content", {})
            responses[status] = response | {"description": text, "content": content | response["content"]}


def _require_key(parameters: list[dict[str, Any]]) -> None:
    for each in parameters:
        if each.get("name") == HEADER:
            each["required"] = True
