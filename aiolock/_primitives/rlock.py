"""AsyncRLock: a reentrant lock, owned by one asyncio task or by a named owner."""

from typing import final

from aiolock._core.session import Sessions
from aiolock._keys import LockKeys
from aiolock._primitives.base import BaseLock
from aiolock._scripts import LOCK, Want
from aiolock._types import Holder


class OneHolder(BaseLock):
    """A lock that one owner holds at a time: what can be asked of it, and done to it, from outside."""

    __slots__ = ()

    async def locked(self) -> bool:
        """
        Whether anyone holds the lock, by Redis.

        Waits for the server's answer, up to `LockConfig.command_timeout`, and changes nothing; cancelling is harmless.
        `held`, `hold_count`, `remaining` and `holder` do the same.

        Raises:
            NotALockError: the key is something else.
            BackendError: Redis failed.
            ClientClosedError: the client is closed, or belongs to another loop or process.
        """
        return (await self._sessions.open().inspector.look(self._keys)).locked

    async def held(self) -> bool:
        """Whether the current owner holds the lock, by Redis; waits and raises as `locked`."""
        return await self.hold_count() > 0

    async def hold_count(self) -> int:
        """How many holds the current owner has, by Redis; waits and raises as `locked`."""
        session = self._sessions.open()
        owner, _ = session.owners.acting(self._named)
        return (await session.inspector.look(self._keys, owner)).holds

    async def remaining(self) -> float | None:
        """Seconds until the lease of whoever holds the lock ends, by Redis; ``None`` if free. Waits as `locked`."""
        state = await self._sessions.open().inspector.look(self._keys)
        return state.left if state.locked else None

    async def holder(self) -> Holder | None:
        """Who holds the lock, by Redis; ``None`` if nobody does. Waits and raises as `locked`."""
        return await self._sessions.open().inspector.holder(self._keys)

    async def force_release(self) -> bool:
        """
        Free the lock whoever holds it, and wake a waiter; whether anyone held it.

        For operators: the holder learns of it with its next renewal or release, and not before, unless it is of this
        client. Cancelling leaves it done or not done. Raises `NotALockError` and `BackendError`.
        """
        return await self._sessions.open().force_release(self._want)


@final
class AsyncRLock(OneHolder):
    """
    A reentrant distributed lock; made by `LockClient.lock`.

    A handle without state of its own: cheap, may be shared by tasks, and equal in effect to any other of the same
    name. The owner is the running task, unless the lock was made for a named owner. The owner may acquire again, and
    the lock is free after as many releases. Follows Redisson's ``RLock``, with which it shares its layout in Redis.
    """

    __slots__ = ()

    def __init__(self, sessions: Sessions, keys: LockKeys, named: str | None) -> None:
        super().__init__(sessions, Want(keys, LOCK), named)
