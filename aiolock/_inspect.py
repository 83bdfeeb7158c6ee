"""Questions about a lock that are answered by the server."""

from dataclasses import dataclass

from aiolock._backend import Backend
from aiolock._card import card_key
from aiolock._errors import NotALockError
from aiolock._scripts import GRANTED, INSPECT, NOT_A_LOCK, READ_CARD
from aiolock._types import Holder, LockKeys


@dataclass(frozen=True, slots=True)
class Sight:
    """What the server saw: the holds of the owner in question, and who holds the lock; *left* is in seconds."""

    locked: bool
    holds: int
    left: float
    holder: str
    holder_holds: int


class Inspector:
    """Looks at locks, changes nothing."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def look(self, keys: LockKeys, owner: str = "") -> Sight:
        """The lock as it is now, with the holds of *owner*."""
        status, holds, left, holder, holder_holds = await self._backend.submit(INSPECT, (keys.lock,), owner)
        if status == NOT_A_LOCK:
            raise NotALockError(keys.name)
        return Sight(status == GRANTED, holds, left / 1000, holder.decode(errors="replace"), holder_holds)

    async def holder(self, keys: LockKeys) -> Holder | None:
        """Who holds the lock, with what its client card says."""
        sight = await self.look(keys)
        if not sight.locked:
            return None
        client, _, owner = sight.holder.partition(":")
        host, pid, name = await self._backend.submit(READ_CARD, (card_key(client),))
        return Holder(
            client=client,
            owner=owner.removeprefix("named:"),
            holds=sight.holder_holds,
            remaining=sight.left,
            host=host and host.decode(),
            pid=pid and int(pid),
            client_name=(name and name.decode()) or None,
        )
