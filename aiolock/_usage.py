"""Where and whether a client may be used: one process, one event loop, until it is closed."""

import asyncio

from aiolock._errors import ClientClosedError
from aiolock._process import forks


class Usage:
    """Bound to the loop and the process in which it is made."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self._forks = forks()
        self.closed = False

    @property
    def forked(self) -> bool:
        """Whether this is a child of that process."""
        return forks() != self._forks

    def check_place(self) -> None:
        """Raise unless called in that process and that loop."""
        if forks() != self._forks:
            raise ClientClosedError("other process")
        if (loop := _running_loop()) is not self.loop:
            # A forked child that goes on in a coroutine of its parent has no loop, and may have used the client since.
            raise ClientClosedError("other process" if loop is None and forks() else "other loop")

    def can_leave(self, error: BaseException | None) -> bool:
        """
        Whether a block can be left here; raises, as `check_place`, if it cannot and no *error* leaves it.

        A forked child that leaves a block of its parent has nothing to give back, and its own exception counts.
        """
        try:
            self.check_place()
        except ClientClosedError as misplaced:
            if error is None:
                raise
            if misplaced.reason == "other loop":
                error.add_note(f"aiolock: {misplaced}")
            return False
        return True

    def check_open(self) -> None:
        """Raise if the client is closed."""
        if self.closed:
            raise ClientClosedError("closed")


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
