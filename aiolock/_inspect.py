"""Questions about a lock that are answered by the server."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass

from aiolock._backend import Backend
from aiolock._call import Call
from aiolock._card import card_key
from aiolock._errors import NotALockError
from aiolock._scripts import GRANTED, INSPECT, NOT_A_LOCK, READ_CARD
from aiolock._types import Holder, LockKeys

_CARD_FOLLOWS = 0.05  # Seconds.
_PING = "aiolock-ping"


@dataclass(frozen=True, slots=True)
class Sight:
    """
    What the server saw: the holds of the owner in question, and who holds the lock; *left* is in seconds.

    *ours* says that the holder is a client of aiolock.
    """

    locked: bool
    holds: int
    left: float
    holder: str
    holder_holds: int
    ours: bool


class Inspector:
    """Looks at locks, changes nothing."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def look(self, keys: LockKeys, owner: str = "") -> Sight:
        """The lock as it is now, with the holds of *owner*."""
        status, holds, left, holder, holder_holds, ours = await self._backend.submit(INSPECT, (keys.lock,), owner)
        if status == NOT_A_LOCK:
            raise NotALockError(keys.name)
        return Sight(status == GRANTED, holds, left / 1000, holder.decode(errors="replace"), holder_holds, ours == 1)

    async def ping(self, prefix: str) -> None:
        """Ask the server about a lock that nobody uses."""
        with suppress(NotALockError):
            await self.look(LockKeys.of(_PING, prefix))

    async def holder(self, keys: LockKeys) -> Holder | None:
        """Who holds the lock, with what its client card says."""
        sight = await self.look(keys)
        if not sight.locked:
            return None
        client, _, owner = sight.holder.partition(":")
        host, pid, name = await self._card(client)
        if host is None and sight.ours:  # The card follows right behind a client's first grant.
            await asyncio.sleep(_CARD_FOLLOWS)
            host, pid, name = await self._card(client)
        return Holder(
            client=client,
            owner=owner.removeprefix("named:"),
            holds=sight.holder_holds,
            remaining=sight.left,
            host=host and host.decode(),
            pid=pid and int(pid),
            client_name=(name and name.decode()) or None,
        )

    def _card(self, client: str) -> Call:
        return self._backend.submit(READ_CARD, (card_key(client),))
