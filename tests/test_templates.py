"""The names that templates make of values: those of `str.format`, and none that differs between processes."""

from datetime import date
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from aiolock._templates import filled


class Tags(set[str]):
    """A set that has one text in all processes."""

    def __str__(self) -> str:
        return ",".join(sorted(self))


class Query(NamedTuple):
    tags: set[str]
    page: int

    def __str__(self) -> str:
        return f"page {self.page}"


class Formatted:
    """An object whose only text is that of its format."""

    def __format__(self, spec: str) -> str:
        return f"formatted {spec}"


class Bare:
    """An object without a text."""


VALUES: dict[str, Any] = {
    "number": 7,
    "width": 5,
    "empty": (),
    "items": {"a": [1, None]},
    "day": date(2026, 11, 28),
    "tags": Tags("ba"),
    "query": Query({"a"}, 3),
    "formatted": Formatted(),
}


@pytest.mark.parametrize(
    "template",
    [
        "order:{number}",
        "{{number}}:{number}",
        "{empty}{number:0{width}d}",
        "{empty}{items[a][0]:>{width}}",
        "{items}:{items[a]!r:>20}",
        "{empty}{day:%d {{}} %m}",
        "{empty}{day.year!a}",
        "{empty}{tags}",
        "{empty}{query}",
        "{empty}{formatted:{width}}",
    ],
)
def test_a_filled_template_is_that_of_str_format(template: str) -> None:
    assert filled(template, VALUES) == template.format_map(VALUES)


@pytest.mark.parametrize("template", ["{value}", "{value!s:.30}", "{value!r:>300}", "{value!a:^300}", "{value!s:.20}"])
@pytest.mark.parametrize(
    "value", [{"\xe4", "b"}, frozenset(), [(), ({1},)], {"a": {"b": {1}}}, {frozenset("ab"): 1}, Query({"a"}, 3)]
)
def test_a_set_is_found_wherever_it_is(template: str, value: object) -> None:
    if isinstance(value, Query):
        template = template.replace("!s", "!r").replace("{value}", "{value!r}")
    with pytest.raises(ValueError, match=r"^the name '.+' has a set in {value}, whose order differs between processes"):
        filled(template, {"value": value})


@pytest.mark.parametrize("template", ["{value}", "{value!s:.80}", "{value!r:>300}", "{value!a}", "{value.__init__}"])
@pytest.mark.parametrize("value", [Bare(), [Bare()], {"a": Bare()}, SimpleNamespace(a=Bare())])
def test_an_address_is_found_wherever_it_is(template: str, value: object) -> None:
    with pytest.raises(ValueError, match=r"^the name '.+' has the address of an object in {value.*}, .* at 0x"):
        filled(template, {"value": value})


def test_a_format_that_cuts_an_address_does_not_hide_it() -> None:
    shortest = str(Bare()).index(" at 0x") + len(" at 0x1")
    with pytest.raises(ValueError, match=r"has the address of an object in {value}"):
        filled(f"{{value!s:.{shortest}}}", {"value": Bare()})


def test_a_text_from_a_client_may_look_like_an_address() -> None:
    sent = str(Bare())
    assert filled("name:{value}", {"value": sent}, sent=True) == f"name:{sent}"
    assert filled("name:{value}", {"value": [sent, 1]}, sent=True) == f"name:{[sent, 1]}"
    with pytest.raises(ValueError, match=r"the address of an object in {value}"):
        filled("name:{value}", {"value": sent})
    with pytest.raises(ValueError, match=r"the address of an object in {value}"):
        filled("name:{value}", {"value": Bare()}, sent=True)
    with pytest.raises(ValueError, match=r"the address of an object in {value}"):
        filled("name:{value}", {"value": [sent, Bare()]}, sent=True)
