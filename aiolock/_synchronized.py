"""The decorator `LockClient.synchronized`: a coroutine function that runs under a lock named by its arguments."""

import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from string import Formatter
from typing import Any, ParamSpec, TypeVar

from aiolock._rlock import AsyncRLock
from aiolock._types import Duration, lease_seconds, seconds, text

P = ParamSpec("P")
R = TypeVar("R")


def synchronize(
    template: str, make_lock: Callable[[str], AsyncRLock], wait: Duration | None, lease: Duration | None
) -> Callable[[Callable[P, Coroutine[Any, Any, R]]], Callable[P, Coroutine[Any, Any, R]]]:
    """What `LockClient.synchronized` returns."""
    text(template, "the name template")
    most = None if wait is None else seconds(wait, "wait", zero=True)
    length = None if lease is None else lease_seconds(lease)

    def decorate(function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
        name_of = _namer(template, function)

        @functools.wraps(function)
        async def under_lock(*args: P.args, **kwargs: P.kwargs) -> R:
            async with make_lock(name_of(*args, **kwargs)).hold(most, length):
                return await function(*args, **kwargs)

        return under_lock

    return decorate


def _namer(template: str, function: Callable[..., Awaitable[object]]) -> Callable[..., str]:
    """What builds the lock's name from the arguments of a call, with the defaults filled in."""
    if not inspect.iscoroutinefunction(function):
        raise TypeError(f"synchronized is for coroutine functions (async def), not {function!r}")
    signature = inspect.signature(function)
    _check_placeholders(template, signature)

    def name_of(*args: object, **kwargs: object) -> str:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return template.format_map(bound.arguments)

    return name_of


def _check_placeholders(template: str, signature: inspect.Signature) -> None:
    for _, field, spec, conversion in Formatter().parse(template):
        if field is None:
            continue
        if conversion not in {None, "a", "r", "s"}:
            raise ValueError(f"{template!r}: there is no conversion !{conversion}")
        parameter = field.partition(".")[0].partition("[")[0]
        if parameter not in signature.parameters:
            known = ", ".join(signature.parameters) or "none"
            raise ValueError(f"{template!r}: {{{field}}} names no parameter of the function (it has: {known})")
        _check_placeholders(spec or "", signature)
