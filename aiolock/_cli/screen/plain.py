"""The picture of one look, and the screen that shows it as lines; `live` has a table that stays in place."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Self

from aiolock._cli import output
from aiolock._cli.locks.model import Lock
from aiolock._cli.locks.words import HEADINGS, aligned, rows
from aiolock._cli.output import printable, write, write_json

ORDERS: dict[str, Callable[[Lock], tuple[object, ...]]] = {
    "waiting": lambda lock: (-lock.waiting, -lock.age, lock.name),
    "held": lambda lock: (-lock.age, lock.name),
    "left": lambda lock: (not lock.holds, lock.left, lock.name),
    "name": lambda lock: (lock.name,),
}


@dataclass(frozen=True, slots=True)
class Frame:
    """
    The *locks*, in order, *at* that time of day; the look *took* some seconds, not counting a silence of the server.

    A frame with an *error* is of a look that failed, and has the locks of the last one that did not.
    """

    at: str
    server: str
    locks: Sequence[Lock] = ()
    took: float = 0.0
    error: str | None = None

    @property
    def summary(self) -> str:
        """A line that sums up the locks, or the error."""
        if self.error is not None:
            return self.error
        if not self.server:
            return "looking at all keys for the first time"
        holds = [hold for lock in self.locks for hold in lock.holds]
        clients, held = len({hold.client for hold in holds}), sum(bool(lock.holds) for lock in self.locks)
        waiting = sum(lock.waiting for lock in self.locks)
        return f"{held} held by {clients} client{'' if clients == 1 else 's'}, {waiting} waiting"

    def as_dict(self) -> dict[str, object]:
        """The fields of the JSON object."""
        return {
            "at": self.at,
            "server": self.server,
            "error": self.error,
            "locks": [] if self.error is not None else self.locks,
        }


def now() -> str:
    """The time of day."""
    return f"{datetime.now().astimezone():%H:%M:%S}"


def ordered(locks: Sequence[Lock], order: str) -> list[Lock]:
    """*locks* in the *order* that the user chose."""
    return sorted(locks, key=ORDERS[order])


class Screen:
    """Plain lines."""

    left: bool = False
    """Whether the user has left."""

    def __init__(self) -> None:
        self._last = Frame(now(), "")
        self._told_of_silence = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def show(self, frame: Frame) -> None:
        """Show the locks of *frame*."""
        self._last, self._told_of_silence = frame, False
        self.draw(frame)

    def show_silence(self, seconds: float) -> None:
        """Show that the server has not answered for that long; lines say so once."""
        if not self._told_of_silence:
            self._told_of_silence = True
            self.draw(silent(self._last, seconds))

    def draw(self, frame: Frame) -> None:
        """Write one frame."""
        locks = frame.locks if frame.error is None else ()
        lines = aligned([HEADINGS, *(row for lock in locks for row in rows(lock))], output.width()) if locks else []
        write("\n".join([f"{frame.at}  {frame.server}  {printable(frame.summary)}", *lines, ""]))

    async def left_within(self, seconds: float) -> bool:
        """Wait until the next look; returns whether the user leaves."""
        await asyncio.sleep(seconds)
        return False


class JSONLines(Screen):
    """One JSON object in each line."""

    def draw(self, frame: Frame) -> None:
        write_json(frame)


def silent(last: Frame, seconds: float) -> Frame:
    """The *last* frame again, with the time for which the server has not answered."""
    of = f"; the list is of {last.at}" if last.locks else ""
    return replace(last, at=now(), error=f"no answer for {seconds:.0f} s{of}")
