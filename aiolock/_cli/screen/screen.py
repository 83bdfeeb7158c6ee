"""The screen that shows locks as lines, in any output; `live` has a table that stays in place."""

import asyncio
from dataclasses import replace
from types import TracebackType
from typing import Self

from aiolock._cli import terminal
from aiolock._cli.locks.words import HEADINGS, aligned, rows
from aiolock._cli.output import write, write_json
from aiolock._cli.screen.frame import Frame, now
from aiolock._cli.terminal import printable


class Screen:
    """Plain lines."""

    left: bool = False
    """Whether the user has left."""

    def __init__(self) -> None:
        self._last = Frame(now(), "")
        self._told_of_silence = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        lines = aligned([HEADINGS, *(row for lock in locks for row in rows(lock))], terminal.width()) if locks else []
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
