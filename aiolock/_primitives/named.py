"""What every primitive with one name has, and how one without owners is acquired."""

from typing import TYPE_CHECKING

from aiolock._core.acquire import Acquisition
from aiolock._core.session import Sessions
from aiolock._keys import LockKeys
from aiolock._scripts import Want
from aiolock._types import Duration, LockStatistics, quoted, seconds
from aiolock._words import refuse_attribute, shown_as


@shown_as("handle")
class Named:
    """A handle of the primitive with one name; the handle has no state of its own."""

    __slots__ = ("__weakref__", "_keys", "_sessions")

    if not TYPE_CHECKING:
        __getattr__ = refuse_attribute

    def __init__(self, sessions: Sessions, *, keys: LockKeys) -> None:
        self._sessions = sessions
        self._keys = keys

    @property
    def name(self) -> str:
        """The name that was given to the factory."""
        return self._keys.name

    def statistics(self) -> LockStatistics:
        """The numbers of this client for this name at the moment; no I/O."""
        session = self._sessions.session
        return LockStatistics() if session is None else session.statistics_of(self._keys)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {quoted(self.name)}>"


async def acquire_without_owner(sessions: Sessions, want: Want, wait: Duration | None) -> bool:
    """Acquire a primitive that has no owners within *wait* seconds; returns whether the server granted it."""
    most = None if wait is None else seconds(wait, "wait", zero=True)
    session = sessions.open()
    acquisition = Acquisition(session, want, session.client, session.owners.running(), None, kept=False)
    return await acquisition.run(most) is not None
