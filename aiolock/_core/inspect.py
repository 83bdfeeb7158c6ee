"""Questions that are answered by the server."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from aiolock._backend import Argument, Reply
from aiolock._core.commands import Commands
from aiolock._errors import NotALockError
from aiolock._keys import LockKeys
from aiolock._scripts import NOT_A_LOCK, PING, Script
from aiolock._types import Holder

_CARD_FOLLOWS = 0.05  # Seconds.
_PING = "aiolock-ping"


class Seen(NamedTuple):
    """A hold, as the server saw it; *left* is in seconds, *ours* says that it is of a client of aiolock."""

    owner: str
    holds: int
    left: float
    ours: bool

    @property
    def client(self) -> str:
        """The id of its client."""
        return self.owner.partition(":")[0]


class Inspector:
    """Looks at locks and at what else there is, changes nothing."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    async def look(self, script: Script, keys: LockKeys, *arguments: Argument) -> Sequence[Seen]:
        """Who holds the lock now, as *script* tells it."""
        _, *found = await self.ask(script, keys, 1, *arguments)
        owners = (owner.decode(errors="replace") for owner in found[::4])
        rows = zip(owners, found[1::4], found[2::4], found[3::4], strict=True)
        return [Seen(owner, holds, left / 1000, ours == 1) for owner, holds, left, ours in rows]

    async def ping(self, prefix: str) -> None:
        """Ask the server about a lock that nobody uses; whatever it answers."""
        await self._commands.send(PING, (LockKeys.of(_PING, prefix).lock,), ())

    async def ask(self, script: Script, keys: LockKeys, number: int, *arguments: Argument) -> Reply:
        """The answer to a question of one primitive's own, about the first so many of its *keys*."""
        reply = await self._commands.send(script, keys.all[:number], arguments)
        if reply[0] == NOT_A_LOCK:
            raise NotALockError(keys.name)
        return reply

    async def described(self, holds: Iterable[Seen]) -> Sequence[Holder]:
        """Who has those *holds*, with what the cards of their clients say."""
        holds = list(holds)
        cards = await self._cards({hold.client for hold in holds})
        if missing := {hold.client for hold in holds if hold.ours and cards[hold.client][0] is None}:
            await asyncio.sleep(_CARD_FOLLOWS)  # A card follows right behind the first grant of a client.
            cards |= await self._cards(missing)
        return [_holder(hold, cards[hold.client]) for hold in holds]

    async def _cards(self, clients: Iterable[str]) -> dict[str, Reply]:
        """What the cards of *clients* say, all asked for at once."""
        asked = {client: self._commands.read_card(client) for client in clients}
        return {client: await call for client, call in asked.items()}


def _holder(hold: Seen, card: Reply) -> Holder:
    host, pid, name = card
    return Holder(
        client=hold.client,
        owner=hold.owner.partition(":")[2].removeprefix("named:"),
        holds=hold.holds,
        remaining=hold.left,
        host=host and host.decode(),
        pid=pid and int(pid),
        client_name=(name and name.decode()) or None,
    )
