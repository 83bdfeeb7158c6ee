"""What can be asked of a lock, and done to it, from outside."""

from collections.abc import Sequence

from aiolock._core.inspect import Seen
from aiolock._errors import BackendError, NotALockError, NotHeldError
from aiolock._primitives.base import BaseLock
from aiolock._scripts import INSPECT
from aiolock._types import Holder


class Reentrant(BaseLock):
    """A lock of which Redis tells who holds it, and how often."""

    __slots__ = ()

    async def locked(self) -> bool:
        """
        Whether anyone holds the lock, by Redis.

        Waits for the server's answer, up to `LockConfig.command_timeout`, and changes nothing; cancelling is harmless.
        `held`, `hold_count`, `remaining`, `holder` and `holders` do the same.

        Raises:
            NotALockError: the key is something else.
            BackendError: Redis failed.
            ClientClosedError: the client is closed, or belongs to another loop or process.
        """
        return bool(await self._seen())

    async def held(self) -> bool:
        """Whether the current owner holds the lock, by Redis; waits and raises as `locked`."""
        return await self.hold_count() > 0

    async def hold_count(self) -> int:
        """How many holds the current owner has, by Redis; waits and raises as `locked`."""
        owner = self._owner()
        return sum(hold.holds for hold in await self._seen() if hold.owner == owner)

    async def remaining(self) -> float | None:
        """Seconds until the last lease of whoever holds the lock ends, by Redis; ``None`` if free. As `locked`."""
        return max((hold.left for hold in await self._seen()), default=None)

    async def force_release(self) -> bool:
        """
        Free the lock whoever holds it, and wake who waits; whether anyone held it.

        For operators: a holder learns of it with its next renewal or release, and not before, unless it is of this
        client. Cancelling leaves it done or not done. Raises `NotALockError` and `BackendError`.
        """
        return await self._sessions.open().force_release(self._want)

    async def _seen(self) -> Sequence[Seen]:
        """All holds of it."""
        return await self._sessions.open().inspector.look(INSPECT, self._keys)

    async def _holders(self) -> Sequence[Holder]:
        """Who holds it."""
        return await self._sessions.open().inspector.described(await self._seen())

    async def _holder(self) -> Holder | None:
        """Who holds it; of several, the first."""
        first = await self._sessions.open().inspector.described((await self._seen())[:1])
        return next(iter(first), None)

    def _owner(self) -> str:
        return self._sessions.open().owners.acting(self._named)[0]

    async def _not_held(self) -> NotHeldError:
        owner = self._owner()
        try:
            return NotHeldError(self.name, owner, await self._holder())
        except (BackendError, NotALockError):
            return NotHeldError(self.name, owner, None, "it is not known who does")
