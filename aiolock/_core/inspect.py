"""Questions that are answered by the server."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass

from aiolock._backend import Argument, Call, Reply
from aiolock._core.commands import Commands
from aiolock._errors import NotALockError
from aiolock._keys import LockKeys
from aiolock._scripts import GRANTED, NOT_A_LOCK, Script
from aiolock._types import Holder

_CARD_FOLLOWS = 0.05  # Seconds.
_PING = "aiolock-ping"


@dataclass(frozen=True, slots=True)
class LockState:
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
    """Looks at locks and at what else there is, changes nothing."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    async def look(self, keys: LockKeys, owner: str = "") -> LockState:
        """The lock as it is now, with the holds of *owner*."""
        return await _seen(keys, self._commands.inspect(keys, owner))

    async def ping(self, prefix: str) -> None:
        """Ask the server about a lock that nobody uses."""
        keys = LockKeys.of(_PING, prefix)
        with suppress(NotALockError):
            await _seen(keys, self._commands.ping(keys))

    async def holder(self, keys: LockKeys) -> Holder | None:
        """Who holds the lock, with what its client card says."""
        state = await self.look(keys)
        if not state.locked:
            return None
        return await self.described(state.holder, state.holder_holds, state.left, ours=state.ours)

    async def ask(self, script: Script, keys: LockKeys, number: int, *arguments: Argument) -> Reply:
        """The answer to a question of one primitive's own, about the first so many of its *keys*."""
        reply = await self._commands.ask(script, keys.all[:number], arguments)
        if reply[0] == NOT_A_LOCK:
            raise NotALockError(keys.name)
        return reply

    async def described(self, holder: str, holds: int, left: float, *, ours: bool) -> Holder:
        """The *holder* as it stands in Redis, with what the card says of its client, which may be one of *ours*."""
        client, _, owner = holder.partition(":")
        host, pid, name = await self._commands.read_card(client)
        if host is None and ours:  # The card follows right behind a client's first grant.
            await asyncio.sleep(_CARD_FOLLOWS)
            host, pid, name = await self._commands.read_card(client)
        return Holder(
            client=client,
            owner=owner.removeprefix("named:"),
            holds=holds,
            remaining=left,
            host=host and host.decode(),
            pid=pid and int(pid),
            client_name=(name and name.decode()) or None,
        )


async def _seen(keys: LockKeys, call: Call) -> LockState:
    status, holds, left, holder, holder_holds, ours = await call
    if status == NOT_A_LOCK:
        raise NotALockError(keys.name)
    return LockState(status == GRANTED, holds, left / 1000, holder.decode(errors="replace"), holder_holds, ours == 1)
