"""A detached hold, as the client that has detached it knows it."""

from time import monotonic
from typing import final

import anyio

from aiolock._backend import Call
from aiolock._config import ENDED_MEMORY
from aiolock._core.commands import Commands
from aiolock._errors import beside
from aiolock._scripts import Claim
from aiolock._scripts.replies import Changed


@final
class Detached:
    """A detached hold on the server, which lasts for *keep* seconds or until it is adopted."""

    __slots__ = ("_claim", "_commands", "_release", "_until")

    def __init__(self, commands: Commands, claim: Claim, keep: float) -> None:
        self._commands = commands
        self._claim = claim
        self._until = monotonic() + keep + ENDED_MEMORY
        self._release: Call[Changed] | None = None

    def take_back(self) -> Call[Changed]:
        """Free the lock, once, unless it was adopted; a detach that arrives later has no effect."""
        self._release = self._release or self._commands.release(self._claim, 2, 0, self._until)
        return self._release

    async def leave(self, error: BaseException | None) -> None:
        """Leave the block of the hold; after an *error*, free the lock, because the ticket may have reached nobody."""
        if error is not None:
            with anyio.CancelScope(shield=True):
                await self.free_beside(error)

    async def free_beside(self, error: BaseException) -> None:
        """Free the lock while *error* is on its way; a failure here becomes a note of *error*."""
        with beside(error):
            await self.take_back()
