"""Whether a server has been out of reach for so long that nobody need wait for it."""

from time import monotonic

_ONE_ATTEMPT = 0.2  # Seconds, for a connection to a server that is back.


class Outage:
    """
    Attempts to reach a server that fail.

    It lasts when they have failed for *patience* seconds, the last of them less than that ago: after a rest nothing is
    known, and whoever comes first tries as long as anybody.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._since: float | None = None
        self._last: float = 0.0
        self._sought_until: float = 0.0

    @property
    def lasts(self) -> bool:
        """Whether to wait for one attempt only."""
        since, last = self._since, self._last
        return since is not None and last - since >= self._patience and monotonic() < last + self._patience

    @property
    def is_sought(self) -> bool:
        """Whether to go on with the attempts, though nobody waits for them."""
        return self._since is not None and monotonic() < self._sought_until

    def seek(self) -> float:
        """Go on with the attempts for a while, so that its end is found; how many seconds to wait for one."""
        self._sought_until = monotonic() + self._patience
        return _ONE_ATTEMPT

    def failed(self) -> None:
        """An attempt failed."""
        now = monotonic()
        if self._since is None or now >= self._last + self._patience:
            self._since = now
        self._last = now

    def over(self) -> None:
        """The server answered."""
        self._since = None
