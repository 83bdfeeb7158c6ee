"""Whether a server has been out of reach for so long that nobody need wait for it."""

import math
from time import monotonic

_ONE_ATTEMPT = 0.2  # Seconds at least, for a connection to a server that is back.
_KNOWN = 12  # Times the patience: how long a failure says anything of the server.


class Outage:
    """
    Attempts to reach a server that fail.

    It lasts when that began *patience* seconds ago and went on for most of them, until an attempt succeeds. After a
    long rest nothing is known, and whoever comes first tries as long as anybody.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self.since: float | None = None  # The beginning of the first failure, after which there was no success.
        self._last: float = 0.0
        self._took: float = math.inf  # Seconds, for the quickest connection so far: others met a pause, perhaps.

    @property
    def lasts(self) -> bool:
        """Whether to wait for one attempt only."""
        if self.since is None:
            return False
        # A call that fails after its whole time has made its last attempt some time before: it pauses between them.
        went_on = self._last - self.since >= self._patience / 2
        return went_on and monotonic() >= self.since + self._patience and not self._is_old()

    @property
    def one_attempt(self) -> float:
        """How many seconds to wait for one attempt, which itself goes on for as long as any."""
        return max(_ONE_ATTEMPT, 2 * self._took) if self._took < self._patience / 2 else _ONE_ATTEMPT

    def failed(self, waited: float) -> None:
        """An attempt failed, which was *waited* for so many seconds."""
        if self.since is None or self._is_old():
            self.since = monotonic() - waited
        self._last = monotonic()

    def over(self, took: float) -> None:
        """There is a connection, which it *took* so many seconds to make."""
        self.since = None
        self._took = min(self._took, took)

    def _is_old(self) -> bool:
        return monotonic() >= self._last + _KNOWN * self._patience
