"""The decorator `LockClient.synchronized`: it runs a coroutine function under locks named by its arguments."""

import functools
import inspect
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ParamSpec, TypeVar

from aiolock._primitives.handle import Handle
from aiolock._primitives.section import Conduct, Section
from aiolock._templates import filled, parsed
from aiolock._types import text

P = ParamSpec("P")
R = TypeVar("R")


def synchronize(
    templates: Sequence[str], handle_of: Callable[[str | Sequence[str]], Handle], conduct: Conduct
) -> Callable[[Callable[P, Coroutine[Any, Any, R]]], Callable[P, Coroutine[Any, Any, R | None]]]:
    """The decorator of `LockClient.synchronized`; a function that is skipped returns ``None``."""
    guard = guard_of(templates, handle_of, conduct)

    def decorate(function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R | None]]:
        check_coroutine_function(function, "synchronized")
        section_for = guard(function)

        @functools.wraps(function)
        async def under_lock(*args: P.args, **kwargs: P.kwargs) -> R | None:
            async with section_for(*args, **kwargs) as runs:
                return await function(*args, **kwargs) if runs else None

        return under_lock

    return decorate


def guard_of(
    templates: Sequence[str], handle_of: Callable[[str | Sequence[str]], Handle], conduct: Conduct
) -> Callable[[Callable[..., object]], Callable[..., Section]]:
    """
    The function that prepares a function for its locks.

    It checks the templates against the function's parameters, and returns a maker: with the arguments of one call, the
    maker returns the `Section` of that call.
    """
    for template in templates:
        _ = parsed(text(template, "the name template, as in @synchronized('order:{order_id}'),"))

    def guard(function: Callable[..., object]) -> Callable[..., Section]:
        names_of = _namer(templates, function)
        return lambda *args, **kwargs: Section(handle_of(names_of(*args, **kwargs)), conduct)

    return guard


def check_coroutine_function(function: object, decorator: str) -> None:
    """Raise unless *function*, which gets the *decorator*, is a coroutine function."""
    if not inspect.iscoroutinefunction(function):
        what = "coroutine functions (async def without yield; @staticmethod and @classmethod stand above it)"
        raise TypeError(f"{decorator} is for {what}, not {function!r}")


def check_maker(of: object) -> None:
    """Raise if *of* cannot make a handle of a client and a name."""
    if of is not None and not callable(of):
        raise TypeError(f"of must be a function of the client and the name, such as LockClient.semaphore, not {of!r}")


def _namer(templates: Sequence[str], function: Callable[..., object]) -> Callable[..., str | list[str]]:
    """The function that makes the locks' names from the arguments of a call, with the defaults filled in."""
    signature = inspect.signature(function)
    for template in templates:
        _check_placeholders(template, signature)

    def names_of(*args: object, **kwargs: object) -> str | list[str]:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        names = [filled(template, bound.arguments) for template in templates]
        return names if len(names) > 1 else names[0]

    return names_of


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
