"""What a check comes to."""

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "note", "warning", "error", "unknown"]


@dataclass(frozen=True, slots=True)
class Check:
    """One point of the examination: what was *found*, and what to do about it unless it is ok."""

    name: str
    status: Status
    found: str
    advice: str = ""
