"""The decorator `LockClient.synchronized`: it runs a coroutine function under locks named by its arguments."""

import functools
import inspect
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from string import Formatter
from typing import Any, ParamSpec, TypeVar

from aiolock._primitives.handle import Handle
from aiolock._primitives.section import Conduct, Section
from aiolock._types import quoted, text

# What Python writes for an object whose class has no text for it.
_ADDRESS = re.compile(" at 0x[0-9a-f]+>")

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
    fields = {field for template in templates for _, field, _, _ in parsed(template)}
    whole = [parameter for parameter in signature.parameters if parameter in fields]

    def names_of(*args: object, **kwargs: object) -> str | list[str]:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        refuse_sets({each: bound.arguments[each] for each in whole})
        names = [_same_everywhere(template, template.format_map(bound.arguments)) for template in templates]
        return names if len(names) > 1 else names[0]

    return names_of


def refuse_sets(arguments: Mapping[str, object]) -> None:
    """Raise `ValueError` if one of the *arguments* of a name is a set: another process has another text for it."""
    for parameter, value in arguments.items():
        if isinstance(value, set | frozenset):
            how = "name a text of it, such as ','.join(sorted(...))"
            raise ValueError(f"{{{parameter}}} is a set, which has another order in each process; {how}")


def _same_everywhere(template: str, name: str) -> str:
    """*name*, which *template* has made; `ValueError` if it has the address of an object: no other process has that."""
    if _ADDRESS.search(name):
        what = "an object without a text of its own, which is another one in each process"
        raise ValueError(f"{template!r}: {quoted(name)} names {what}; name a part of it, such as {{user.id}}")
    return name


def parsed(template: str) -> Iterable[tuple[str, str | None, str | None, str | None]]:
    """The pieces of *template*, as `string.Formatter.parse` finds them; `ValueError`, with the text, if that fails."""
    try:
        return list(Formatter().parse(template))
    except ValueError as error:
        how = "a placeholder is `{parameter}`, and a brace of the name itself is written twice, `{{` or `}}`"
        raise ValueError(f"{template!r}: {error}; {how}") from error


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
