"""How the locks are shown: as lines, in any output; `live` has a picture that stays in place."""

import argparse
import asyncio
import json
from types import TracebackType
from typing import Self

from aiolock._cli import terminal
from aiolock._cli.locks.words import HEADINGS, aligned, rows
from aiolock._cli.output import write
from aiolock._cli.top.frame import Frame


class Screen:
    """Plain lines."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    def show(self, frame: Frame) -> None:
        """The locks as they are."""
        table = [HEADINGS, *(row for lock in frame.locks for row in rows(lock))] if frame.locks else []
        lines = aligned(table, terminal.width()) if table else []
        write("\n".join([f"{frame.at}  {frame.server}  {frame.summary}", *lines, ""]))

    async def left_within(self, seconds: float) -> bool:
        """Wait until the next look; whether the user wants none."""
        await asyncio.sleep(seconds)
        return False


class JSONLines(Screen):
    """One object a line."""

    def show(self, frame: Frame) -> None:
        write(json.dumps(frame.as_dict()))


def choose(parsed: argparse.Namespace) -> Screen:
    """What was asked for, and the output can show."""
    if parsed.json:
        return JSONLines()
    if parsed.plain or not terminal.is_colourful():
        return Screen()
    try:
        from aiolock._cli.top.live import LiveScreen
    except ImportError:
        return Screen()
    return LiveScreen()
