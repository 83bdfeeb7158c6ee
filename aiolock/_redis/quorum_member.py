"""One server of a quorum, which may lose its memory while the others keep theirs."""

from collections.abc import Callable

from redis.asyncio.connection import AbstractConnection

from aiolock._backend import Call, Client
from aiolock._config import Timing
from aiolock._log import log
from aiolock._redis.backend import OneServer
from aiolock._scripts import ABSTAINS


class Member(OneServer):
    """The server at *address*, as it is called for people."""

    def __init__(self, address: str, connect: Callable[[], AbstractConnection], timing: Timing, client: Client) -> None:
        super().__init__(connect, timing, client)
        self.address = address
        self.is_new = True  # It may have been started since the last connection to it was made.
        self._abstains = False  # When it was asked last.

    async def greet(self, connection: AbstractConnection) -> None:
        await super().greet(connection)
        self.is_new = True

    def broken(self) -> None:
        """Nothing is in doubt: what this one may have forgotten, the majority has not."""

    def note(self, vote: Call) -> None:
        """It was asked to grant something, and answered; say once that it abstains."""
        if vote.args[0]:
            self.is_new = False
        abstains = vote.reply[0] == ABSTAINS
        if abstains and not self._abstains:
            words = "aiolock: %s has no vote for %.3g s: it is new, was started, or has lost its memory"
            log.warning(words, self.address, vote.reply[2] / 1000)
        self._abstains = abstains
