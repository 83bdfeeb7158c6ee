"""One server of a quorum, which may lose its data while the others keep theirs."""

from collections.abc import Callable
from time import monotonic

from redis.asyncio.connection import AbstractConnection

from aiolock._backend import Client
from aiolock._config import Timing
from aiolock._log import log
from aiolock._redis.backend import OneServer
from aiolock._redis.hints import in_words
from aiolock._scripts.replies import Abstains, Vote

# Seconds for which a server counts as slow after a late answer, even if its next answers are in time.
_SLOW = 10.0


class Member(OneServer):
    """One server; messages call it by its *address*."""

    def __init__(self, address: str, connect: Callable[[], AbstractConnection], timing: Timing, client: Client) -> None:
        deaf = f"no unlock messages of {address} can be received, those of the other servers count"
        super().__init__(connect, timing, client, deaf=deaf)
        self.address = address
        # Whether its connection is new, so that the server may have been restarted.
        self.is_new = True
        # The time (monotonic clock) until which it may answer later than the others.
        self._slow_until = 0.0
        # Whether the others have answered since its last answer.
        self._has_let_wait = False
        # Whether no connection could be made since the last one.
        self._is_unreachable = False
        # Whether its last answer was an abstention.
        self._abstains = False

    @property
    def is_silent(self) -> bool:
        """Whether no answer is expected from it soon."""
        return self._has_let_wait or self.only.is_away

    def answered(self, *, late: bool) -> None:
        """Note an answer; it is *late* if a majority had answered a moment before."""
        self._has_let_wait = False
        if late:
            self._slow_until = monotonic() + _SLOW

    def let_wait(self, *, is_late: bool) -> None:
        """Note that it has not answered although the others have; with *is_late*, they did so long ago."""
        self._has_let_wait = self._has_let_wait or is_late or monotonic() >= self._slow_until

    async def greet(self, connection: AbstractConnection) -> None:
        await super().greet(connection)
        self.is_new = True
        self._is_unreachable = False

    def broken(self, error: Exception, *, was_open: bool) -> None:
        """Log that it cannot be reached: no call fails. The majority has the holds that this server may have lost."""
        if not was_open and not self._is_unreachable:
            self._is_unreachable = True
            words = "%s cannot be reached, so that locks depend on the other servers of the quorum: %s"
            log.warning(words, self.address, in_words(error) or "no answer in time")

    def note(self, vote: Vote, *, was_new: bool) -> None:
        """Note its answer to an acquire, on a connection that *was_new*; log its first abstention."""
        if was_new:
            self.is_new = False
        abstains = isinstance(vote, Abstains)
        if isinstance(vote, Abstains) and not self._abstains:
            words = "%s has no vote for %.3g s: it is new, was started again, or has lost its data"
            log.warning(words, self.address, vote.left)
        self._abstains = abstains
