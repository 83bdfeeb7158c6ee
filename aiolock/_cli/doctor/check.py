"""The result of a check."""

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "note", "warning", "error", "unknown"]


@dataclass(frozen=True, slots=True)
class Check:
    """One check of the examination: its result in *found*, and, unless that is ok, *advice* to the user."""

    name: str
    status: Status
    found: str
    advice: str = ""
