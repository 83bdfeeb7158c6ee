"""The template of a lock's name in a web service: which parameters of a request it names."""

from aiolock._primitives.synchronized import parsed
from aiolock._types import text


def parameters_of(template: object) -> set[str]:
    """The parameters that *template* names; `ValueError` for anything but their names, with a plain format if any."""
    names = set()
    for _, field, spec, conversion in parsed(text(template, "the key")):
        if field is None:
            continue
        if not field.isidentifier() or "{" in (spec or "") or conversion not in {None, "a", "r", "s"}:
            raise ValueError(f"{template!r}: {{{field}}} is not the name of a parameter, with a plain format if any")
        names.add(field)
    return names
