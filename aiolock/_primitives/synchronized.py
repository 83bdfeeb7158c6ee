"""The decorator `LockClient.synchronized`: a coroutine function that runs under locks named by its arguments."""

import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from string import Formatter
from typing import Any, ParamSpec, TypeVar

from aiolock._primitives.handle import Handle, block_of
from aiolock._types import Duration, lease_seconds, seconds, text

P = ParamSpec("P")
R = TypeVar("R")


def synchronize(
    templates: Sequence[str],
    handle_of: Callable[[str | Sequence[str]], Handle],
    wait: Duration | None,
    lease: Duration | None,
) -> Callable[[Callable[P, Coroutine[Any, Any, R]]], Callable[P, Coroutine[Any, Any, R]]]:
    """What `LockClient.synchronized` returns."""
    for template in templates:
        text(template, "the name template")
    most = None if wait is None else seconds(wait, "wait", zero=True)
    length = None if lease is None else lease_seconds(lease)

    def decorate(function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
        names_of = _namer(templates, function)

        @functools.wraps(function)
        async def under_lock(*args: P.args, **kwargs: P.kwargs) -> R:
            async with block_of(handle_of(names_of(*args, **kwargs)), most, length):
                return await function(*args, **kwargs)

        return under_lock

    return decorate


def check_maker(of: object) -> None:
    """Raise if *of* cannot make a handle of a client and a name."""
    if of is not None and not callable(of):
        raise TypeError(f"of must be a function of the client and the name, such as LockClient.semaphore, not {of!r}")


def _namer(templates: Sequence[str], function: Callable[..., Awaitable[object]]) -> Callable[..., str | list[str]]:
    """What builds the locks' names from the arguments of a call, with the defaults filled in."""
    if not inspect.iscoroutinefunction(function):
        raise TypeError(f"synchronized is for coroutine functions (async def), not {function!r}")
    signature = inspect.signature(function)
    for template in templates:
        _check_placeholders(template, signature)

    def names_of(*args: object, **kwargs: object) -> str | list[str]:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        names = [template.format_map(bound.arguments) for template in templates]
        return names if len(names) > 1 else names[0]

    return names_of


def parsed(template: str) -> Iterable[tuple[str, str | None, str | None, str | None]]:
    """The pieces of *template*, as `string.Formatter.parse` finds them; `ValueError` that quotes it if it is none."""
    try:
        return list(Formatter().parse(template))
    except ValueError as error:
        raise ValueError(f"{template!r}: {error}") from error


def _check_placeholders(template: str, signature: inspect.Signature) -> None:
    for _, field, spec, conversion in parsed(template):
        if field is None:
            continue
        if conversion not in {None, "a", "r", "s"}:
            raise ValueError(f"{template!r}: there is no conversion !{conversion}")
        parameter = field.partition(".")[0].partition("[")[0]
        if parameter not in signature.parameters:
            known = ", ".join(signature.parameters) or "none"
            raise ValueError(f"{template!r}: {{{field}}} names no parameter of the function (it has: {known})")
        _check_placeholders(spec or "", signature)
