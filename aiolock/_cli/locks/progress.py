"""The progress of a long scan, on standard error if that is a terminal."""

import sys
from time import monotonic
from typing import Self

_SOON = 0.5
_OFTEN = 0.1


class Progress:
    """A line that a long scan shows; call it with the keys that were just looked at, and an increase of their total."""

    def __init__(self) -> None:
        self._began = self._shown = monotonic()
        self._some = self._all = 0
        self._visible = False

    def __call__(self, some: int, of: int) -> None:
        self._some += some
        self._all += of
        now = monotonic()
        if sys.stderr.isatty() and now - self._began > _SOON and now - self._shown > _OFTEN:
            self._visible, self._shown = True, now
            share = min(99, 100 * self._some // max(1, self._all))
            print(f"\r\33[Klooking at {self._all:,} keys: {share} %", end="", file=sys.stderr, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._visible:
            print("\r\33[K", end="", file=sys.stderr, flush=True)
