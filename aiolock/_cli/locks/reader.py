"""Reads one lock, or all of them, from every primary; changes nothing, and never blocks a server."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

from aiolock._cli.locks.counted import PERMITS_END, describe_counters, describe_permits, names_of
from aiolock._cli.locks.hashes import describe, foreign_type
from aiolock._cli.locks.model import Lock
from aiolock._cli.locks.names import keys_of, matching
from aiolock._cli.locks.node import Node, token_of
from aiolock._cli.locks.once import describe_ended
from aiolock._cli.servers import Servers
from aiolock._keys import OWN_LOCKS, QUORUM_KEY, TOKENS_KEY, LockKeys, key_of, own_kind

# Each server is scanned for hashes and for sets. Each kind of `OWN_LOCKS` has a scan of its own.
_SCANS = 2


class Reader:
    """
    Looks at the locks of *servers*.

    *looked_at* is called with the number of keys that a scan has looked at since its last call, and the number that was
    added to the total. *answered* is called at each answer of a server.
    """

    def __init__(
        self,
        servers: Servers,
        looked_at: Callable[[int, int], None] = lambda some, of: None,
        answered: Callable[[], None] = lambda: None,
    ) -> None:
        self._servers = servers
        self._looked_at = looked_at
        self._nodes = {
            address: Node(address, redis, sharded=servers.sharded, answered=answered)
            for address, redis in servers.primaries.items()
        }

    async def locks(self, pattern: str = "*") -> list[Lock]:
        """All locks that are held, and all counters, whose names match *pattern*, as Redis matches them."""
        for size in await asyncio.gather(*(node.size() for node in self._nodes.values())):
            self._looked_at(0, size * (_SCANS + len(OWN_LOCKS)))
        found = await asyncio.gather(*(self._on(node, pattern) for node in self._nodes.values()))
        return [lock for locks in found for lock in locks]

    async def named(self, name: str) -> list[Lock]:
        """The lock or counter called *name*, if it is in use, and after it a `once` of the same name."""
        node, found = self.node_of(name), list[Lock]()
        for look in (_describe_locks, describe_permits, describe_counters):
            found = found or await look(node, [name])
        found += await describe_ended(node, [name])
        for beginning in OWN_LOCKS:
            found += await _describe_own(node, beginning, [name])
        return found

    async def foreign(self, name: str) -> str | None:
        """The type of the key *name* if it is not a lock and must not be touched."""
        return await foreign_type(self.node_of(name), name)

    async def is_of_a_quorum(self, name: str) -> bool:
        """Whether the server of *name* is one of a quorum, where a majority decides who holds it."""
        # A node of a cluster never is; it may refuse a key of another slot.
        if self._servers.slots:
            return False
        [note] = await self.node_of(name).ask([("GET", QUORUM_KEY)])
        return note is not None

    async def last_token(self, name: str) -> int | None:
        """The last token that was granted for *name*, as long as the server remembers it."""
        [score] = await self.node_of(name).ask([("ZSCORE", LockKeys.of(name, "").tokens, "token")])
        return token_of(score)

    async def _on(self, node: Node, pattern: str) -> list[Lock]:
        # A key may come twice while the server's table grows.
        found: dict[tuple[str, str], Lock] = {}
        async for names in self._pages(node, pattern, "hash"):
            found |= _by_name(await _describe_locks(node, names))
        hashes = {name for _, name in found}
        for beginning in OWN_LOCKS:
            async for keys in self._pages(node, f"{beginning}*", "hash"):
                own = _matching(pattern, _names_in(keys, beginning))
                found |= _by_name(await _describe_own(node, beginning, own))
        async for keys in self._pages(node, "*", "zset"):
            tags = [key.removesuffix(PERMITS_END) for key in keys if key.endswith(PERMITS_END)]
            permits = _matching(pattern, [name for tag in tags for name in names_of(tag)])
            found |= _by_name(await describe_permits(node, permits))
            counted = _matching(pattern, _names_in(keys, TOKENS_KEY))
            # A key that is a hash is no number: its type is known.
            found |= _by_name(await describe_counters(node, [name for name in counted if name not in hashes]))
        return list(found.values())

    async def _pages(self, node: Node, pattern: str, kind: str) -> AsyncIterator[list[str]]:
        async for looked, keys in node.pages(pattern, kind):
            self._looked_at(looked, 0)
            yield keys

    def node_of(self, name: str) -> Node:
        """The primary on which the lock *name* is."""
        return self._nodes[self._servers.address_of(name)]


async def _describe_locks(node: Node, names: Sequence[str]) -> list[Lock]:
    return await describe(node, keys_of(LockKeys.of, names))


async def _describe_own(node: Node, beginning: str, names: Sequence[str]) -> list[Lock]:
    """The locks among *names* whose keys have that *beginning*. Outcomes are not read, as each may be large."""
    every = keys_of(OWN_LOCKS[beginning], names)
    asked = await node.ask_of(every, lambda keys: [("HGET", keys.lock, "aiolock:acquisition")])
    held = [keys for keys, [acquisition] in asked if acquisition is not None]
    return await describe(node, held, own_kind(beginning))


def _names_in(keys: Iterable[str], beginning: str) -> list[str]:
    """The names in those of *keys*, of aiolock's own, that have this *beginning*."""
    own = [key.removeprefix(beginning) for key in keys if key.startswith(beginning)]
    return [name for each in own if (name := key_of(each)) is not None]


def _matching(pattern: str, names: Iterable[str]) -> list[str]:
    expression = matching(pattern)
    return [name for name in names if expression.fullmatch(name.encode())]


def _by_name(locks: Iterable[Lock]) -> dict[tuple[str, str], Lock]:
    return {(lock.kind, lock.name): lock for lock in locks}
