"""Templates of lock names, and the names that they make of values; a lock has the same name in each process."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from string import Formatter

from aiolock._types import quoted

# What Python writes for an object whose class has no text for it.
_ADDRESS = re.compile(" at 0x[0-9a-f]+>")
# Found in every name that is made of a set or an address, even if a format cuts its end, and in few other names.
_LOOKS_WRONG = re.compile(r"\{|\(\)| at 0x")
_FAILS = (AttributeError, LookupError, TypeError, ValueError)
_FORMATTER = Formatter()


def parsed(template: str) -> Sequence[tuple[str, str | None, str | None, str | None]]:
    """The pieces of *template*, as `string.Formatter.parse` finds them; `ValueError`, with the text, if that fails."""
    try:
        return list(_FORMATTER.parse(template))
    except ValueError as error:
        how = "a placeholder is `{parameter}`, and a brace of the name itself is written twice, `{{` or `}}`"
        raise ValueError(f"{template!r}: {error}; {how}") from error


def filled(template: str, values: Mapping[str, object], *, sent: bool = False) -> str:
    """
    The name that *template* makes of *values*, as `str.format_map` does.

    Raises `ValueError` if a value cannot be formatted, or has another text in another process. If clients have *sent*
    the values, a text is no such value, nor a list of texts, even if a text looks like the address of an object.
    """
    try:
        name = template.format_map(values)
    except _FAILS:
        pass
    else:
        if not _LOOKS_WRONG.search(name):
            return name
    return _filled_one_by_one(template, values, sent)


def _filled_one_by_one(template: str, values: Mapping[str, object], sent: bool) -> str:
    """The same, with a look at each value, which takes some ten times as long."""

    def fill(text: str) -> str:
        return "".join(
            literal if field is None else literal + part(field, fill(spec or ""), conversion)
            for literal, field, spec, conversion in parsed(text)
        )

    def part(field: str, spec: str, conversion: str | None) -> str:
        try:
            value = _FORMATTER.get_field(field, (), values)[0]
            converted = value if conversion is None else _FORMATTER.convert_field(value, conversion)
            text = format(converted, spec)
        except _FAILS as error:
            raise ValueError(f"the name {template!r} cannot be made: {{{field}}} raises {error!r}") from error
        if not (sent and _is_text(value)):
            # After a conversion, *spec* may cut the text.
            _refuse_another_elsewhere(template, field, value, text if conversion is None else converted)
        return text

    return fill(template)


def _refuse_another_elsewhere(template: str, field: str, value: object, text: str) -> None:
    """Raise `ValueError` if *text*, which is that of *value*, is another one in another process."""
    sets = (each for each in _contents(value) if isinstance(each, set | frozenset))
    # A class may write its sets in an order of its own.
    if any(repr(each) in text or ascii(each) in text for each in sets):
        what = f"a set in {{{field}}}, whose order differs between processes"
        how = "use an attribute, or a sorted text such as ','.join(sorted(...))"
        raise ValueError(f"the name {template!r} has {what}: {how}")
    if _ADDRESS.search(text):
        what = f"the address of an object in {{{field}}}, {quoted(text)}, which differs between processes"
        how = "use an attribute, or give its class a __str__ (for a list of it, a __repr__)"
        raise ValueError(f"the name {template!r} has {what}: {how}")


def _is_text(value: object) -> bool:
    """Whether *value* is a text, or has no other contents than texts and numbers."""
    return all(isinstance(each, str | int | float | list | tuple | dict | None) for each in _contents(value))


def _contents(value: object) -> Iterator[object]:
    """*value*, and the contents of the lists, tuples and dicts in it."""
    yield value
    if isinstance(value, dict):
        value = [*chain.from_iterable(value.items())]
    if isinstance(value, list | tuple):
        for each in value:
            yield from _contents(each)
