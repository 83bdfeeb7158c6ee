"""Reads what is in Redis: one lock, or all of them, on every primary; it changes nothing, and never blocks a server."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import replace

from aiolock._cli.locks.counted import PERMITS_END, TOKENS, describe_counters, describe_permits, names_of
from aiolock._cli.locks.foreign import foreign_type
from aiolock._cli.locks.hashes import describe
from aiolock._cli.locks.model import Card, Lock
from aiolock._cli.locks.names import matching
from aiolock._cli.locks.node import Node, Question
from aiolock._cli.locks.once import describe_once, describe_running
from aiolock._cli.servers import Servers
from aiolock._keys import ONCE_KEY, OWN_KEYS, QUORUM_KEY, LockKeys, card_key

_CARDS = card_key("")
_RECORD = ":rwlock_timeout:"


class Reader:
    """Looks at the locks of *servers*; *looked_at* is told of so many keys of so many, as a scan goes on."""

    def __init__(self, servers: Servers, looked_at: Callable[[int, int], None] = lambda some, of: None) -> None:
        self._servers = servers
        self._looked_at = looked_at
        self._nodes = {
            address: Node(address, redis, sharded=servers.sharded) for address, redis in servers.primaries.items()
        }

    async def locks(self, pattern: str = "*") -> list[Lock]:
        """All locks that are held, and all counters, whose names match *pattern*, as Redis matches them."""
        await self._announce(3)
        found = await asyncio.gather(*(self._on(node, pattern) for node in self._nodes.values()))
        return await self._with_cards([lock for locks in found for lock in locks])

    async def named(self, name: str) -> list[Lock]:
        """What is called *name*: a lock that is held, or what counts; and behind it what runs once, or has."""
        node, found = self.node_of(name), list[Lock]()
        for look in (_describe_locks, describe_permits, describe_counters):
            found = found or await look(node, [name])
        return await self._with_cards(found + await describe_once(node, [name]))

    async def foreign(self, name: str) -> str | None:
        """The type of the key *name* where that is no lock, and must not be touched."""
        return await foreign_type(self.node_of(name), name)

    async def is_of_a_quorum(self, name: str) -> bool:
        """Whether the server of *name* is one of several, of which a majority says who holds it."""
        [marker] = await self.node_of(name).ask([("GET", QUORUM_KEY)])
        return marker is not None

    async def last_token(self, name: str) -> int | None:
        """The last token that was granted for *name*, as long as it is remembered."""
        [score] = await self.node_of(name).ask([("ZSCORE", LockKeys.of(name, "").tokens, "token")])
        return None if score is None else int(score)

    async def cards(self) -> dict[str, Card]:
        """Every client that says who it is, by its id."""
        await self._announce(1)
        clients: list[str] = []
        for node in self._nodes.values():
            async for looked, keys in node.pages(f"{_CARDS}*", "hash"):
                self._looked_at(looked, 0)
                clients += [key.removeprefix(_CARDS) for key in keys]
        return await self._cards_of(clients)

    async def _announce(self, times: int) -> None:
        for size in await asyncio.gather(*(node.size() for node in self._nodes.values())):
            self._looked_at(0, size * times)

    async def _on(self, node: Node, pattern: str) -> list[Lock]:
        found: dict[tuple[str, str], Lock] = {}  # A key may come twice while the server's table grows.
        async for names in self._pages(node, pattern, "hash"):
            held = [name for name in names if _RECORD not in name and not name.startswith(OWN_KEYS)]
            found |= _by_name(await _describe_locks(node, held))
        async for keys in self._pages(node, f"{ONCE_KEY}*", "hash"):
            # Names like `a` and `{a}` share what runs once.
            once = [some[0] for key in keys if (some := _matching(pattern, [key.removeprefix(ONCE_KEY)]))]
            found |= _by_name(await describe_running(node, once))
        async for keys in self._pages(node, "*", "zset"):
            permits = _matching(pattern, [key.removesuffix(PERMITS_END) for key in keys if key.endswith(PERMITS_END)])
            found |= _by_name(await describe_permits(node, permits))
            counted = _matching(pattern, [key.removeprefix(TOKENS) for key in keys if key.startswith(TOKENS)])
            found |= _by_name(await describe_counters(node, counted))
        return list(found.values())

    async def _pages(self, node: Node, pattern: str, kind: str) -> AsyncIterator[list[str]]:
        async for looked, keys in node.pages(pattern, kind):
            self._looked_at(looked, 0)
            yield keys

    async def _with_cards(self, locks: Sequence[Lock]) -> list[Lock]:
        cards = await self._cards_of({hold.client for lock in locks for hold in lock.holds if hold.client})
        return [replace(lock, holds=[hold.shown_by(cards.get(hold.client)) for hold in lock.holds]) for lock in locks]

    async def _cards_of(self, clients: Iterable[str]) -> dict[str, Card]:
        by_node: dict[str, list[str]] = {}
        for client in clients:
            by_node.setdefault(self._servers.of(card_key(client))[0], []).append(client)
        cards: dict[str, Card] = {}
        for address, some in by_node.items():
            questions: list[Question] = [("HMGET", card_key(each), "host", "pid", "name", "since") for each in some]
            for client, fields in zip(some, await self._nodes[address].ask(questions), strict=True):
                if fields is not None and None not in fields:
                    host, pid, name, since = (field.decode(errors="replace") for field in fields)
                    cards[client] = Card(host, int(pid), name or None, int(since))
        return cards

    def node_of(self, name: str) -> Node:
        """Where the lock *name* is."""
        return self._nodes[self._servers.of(name)[0]]


async def _describe_locks(node: Node, names: Sequence[str]) -> list[Lock]:
    return await describe(node, [LockKeys.of(name, "") for name in names])


def _matching(pattern: str, tags: Iterable[str]) -> list[str]:
    names = [name for tag in tags for name in names_of(tag)]
    expression = matching(pattern)
    return [name for name in names if expression.fullmatch(name.encode())]


def _by_name(locks: Iterable[Lock]) -> dict[tuple[str, str], Lock]:
    return {(lock.kind, lock.name): lock for lock in locks}
