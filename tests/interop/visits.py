"""A counter in a file that nothing protects, and a line for each visit: both show if two holders are inside at once."""

import asyncio
from itertools import pairwise
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from aiolock import AsyncMultiLock, AsyncRLock


class Visit(NamedTuple):
    """The times when *who* entered and left, on the monotonic clock, which Java's System.nanoTime() reads, too."""

    who: str
    entered: float
    left: float


class Visits:
    """The directory that both sides write to; redisson/src/main/java/Visitor.java does as `visit_until_over` does."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "count").write_text("0")
        (directory / "visits").touch()

    async def visit_until_over(self, lock: AsyncRLock | AsyncMultiLock) -> int:
        visits = 0
        while not (self.directory / "over").exists():
            async with lock:
                await self._visit()
                visits += 1
        return visits

    def end(self) -> None:
        (self.directory / "over").touch()

    def all(self) -> list[Visit]:
        lines = (self.directory / "visits").read_text().splitlines()
        return [Visit(who, float(entered), float(left)) for who, entered, left in map(str.split, lines)]

    def check(self) -> int:
        """Check that no two were inside at a time; return how many there were."""
        visits = self.all()
        assert int((self.directory / "count").read_text()) == len(visits)
        assert all(earlier.left < later.entered for earlier, later in pairwise(visits))
        return len(visits)

    async def _visit(self) -> None:
        entered = monotonic()
        seen = int((self.directory / "count").read_text())
        await asyncio.sleep(0.001)
        (self.directory / "count").write_text(str(seen + 1))
        with (self.directory / "visits").open("a") as file:
            file.write(f"python {entered:.6f} {monotonic():.6f}\n")
