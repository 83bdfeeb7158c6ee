"""Templates of lock names in web services, and the request parameters in them."""

from collections.abc import Mapping

from aiolock import _templates
from aiolock._templates import parsed
from aiolock._types import text


def parameters_of(template: object) -> set[str]:
    """The parameters in *template*; `ValueError` if a placeholder is more than a name with a plain format."""
    names = set()
    for _, field, spec, conversion in parsed(text(template, "the key")):
        if field is None:
            continue
        if not field.isidentifier() or "{" in (spec or "") or conversion not in {None, "a", "r", "s"}:
            raise ValueError(f"{template!r}: {{{field}}} is not the name of a parameter, with a plain format if any")
        names.add(field)
    return names


def filled(template: str, values: Mapping[str, object]) -> str:
    """The name that *template* makes of the *values* of its parameters; `ValueError` if one has no text for names."""
    return _templates.filled(template, values, sent=True)
