"""Watches mutual exclusion from outside Redis: each task that enters a critical section writes that into shared memory.

A task that enters must find the place empty, and must find its own mark there when it leaves. Two tasks inside at the
same time are noticed unless both do the same between two bytecodes, which cannot go on for a whole run.
"""

import mmap
from pathlib import Path
from types import TracebackType
from typing import Self

_SIZE = 8


class Witness:
    """One word of memory for each name; shared by the processes that open the same file."""

    def __init__(self, places: int = 1, path: str = "") -> None:
        self.overlaps = 0
        self._map: mmap.mmap | None = None
        if path:
            with Path(path).open("r+b") as file:
                self._map = mmap.mmap(file.fileno(), places * _SIZE)
        self._words = memoryview(self._map or bytearray(places * _SIZE)).cast("q")

    @staticmethod
    def create(path: Path, places: int = 1) -> None:
        """Make the file that processes share."""
        path.write_bytes(bytes(places * _SIZE))

    def enter(self, who: int, place: int = 0) -> None:
        """*who* (not 0, unique among all processes) is inside."""
        if self._words[place]:
            self.overlaps += 1
        self._words[place] = who

    def leave(self, who: int, place: int = 0) -> None:
        """*who* is about to release."""
        if self._words[place] != who:
            self.overlaps += 1
        self._words[place] = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._words.release()
        if self._map is not None:
            self._map.close()
