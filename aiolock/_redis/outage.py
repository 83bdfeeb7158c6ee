"""Whether a server has been out of reach for so long that a call should not wait for it."""

import math
from time import monotonic

# The shortest time limit for one attempt to connect, in seconds.
_ONE_ATTEMPT = 0.2
# The time for which a failure says anything about the server, in units of the patience.
_KNOWN = 12


class Outage:
    """
    Failed attempts to reach a server.

    An outage lasts if it began *patience* seconds ago and attempts failed for most of that time, until one succeeds.
    After a long pause nothing is known, and the first attempt has the usual time.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        # The beginning of the first failure since the last success.
        self.since: float | None = None
        self._last: float = 0.0
        # The seconds of the quickest connection so far: others may have been slowed down by a pause of the process.
        self._took: float = math.inf

    @property
    def lasts(self) -> bool:
        """Whether an outage lasts, so that calls wait for one attempt only."""
        if self.since is None:
            return False
        # The last attempt of a call ends some time before its deadline, because of the pauses between attempts.
        went_on = self._last - self.since >= self._patience / 2
        return went_on and monotonic() >= self.since + self._patience and not self._is_old()

    @property
    def goes_on(self) -> bool:
        """Whether the last attempt failed, and not long ago."""
        return self.since is not None and not self._is_old()

    @property
    def one_attempt(self) -> float:
        """The seconds for which a call waits for one attempt; the attempt itself has the usual time limit."""
        return max(_ONE_ATTEMPT, 2 * self._took) if self._took < self._patience / 2 else _ONE_ATTEMPT

    def failed(self, waited: float) -> None:
        """Note an attempt that failed after *waited* seconds."""
        if self.since is None or self._is_old():
            self.since = monotonic() - waited
        self._last = monotonic()

    def over(self, took: float) -> None:
        """Note a new connection, which took *took* seconds to make."""
        self.since = None
        self._took = min(self._took, took)

    def _is_old(self) -> bool:
        return monotonic() >= self._last + _KNOWN * self._patience
