"""Commands that are not single calls."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from aiolock._backend import Call

Answered = Callable[[Any], list[Call]]
"""Called with the server's answer to a command; returns the calls to send again."""


@dataclass(slots=True)
class Aside:
    """A command that makes several *calls* or none; *tell* gets the server's answer."""

    tell: Answered
    calls: Sequence[Call]
    sent: float = field(default_factory=monotonic)


def ignore(answer: Any) -> list[Call]:
    """Need nothing of the answer."""
    return []
