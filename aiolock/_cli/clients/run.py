"""`run`: the clients, as a table or as JSON."""

import argparse
import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field

from aiolock._cli import terminal
from aiolock._cli.locks.hashes import REDISSON
from aiolock._cli.locks.model import Lock
from aiolock._cli.locks.progress import Progress
from aiolock._cli.locks.reader import Reader
from aiolock._cli.locks.words import aligned
from aiolock._cli.output import write
from aiolock._cli.servers import Servers, asked
from aiolock._cli.terminal import short
from aiolock._identity import Identity, identity_of

_HEADINGS = ("HOST", "PID", "NAME", "CLIENT", "HELD", "LOCKS")
_MOST_NAMED = 20


@dataclass(slots=True)
class Client:
    """One client; *names* are the locks that it holds, a lock with several holds as often."""

    id: str
    library: str
    names: list[str] = field(default_factory=list)

    @property
    def identity(self) -> Identity:
        """The host, process and name that its id says."""
        return identity_of(self.id)

    def as_dict(self) -> dict[str, object]:
        """The fields of the JSON object."""
        return {
            "client": self.id,
            "by": self.library,
            **self.identity.as_dict(),
            "held": len(self.names),
            "locks": sorted(set(self.names)),
        }

    def row(self) -> tuple[str, ...]:
        """The cells of its row in a table."""
        identity = self.identity
        names = sorted(set(self.names))
        listed = " ".join(map(short, names[:_MOST_NAMED])) + (" …" if len(names) > _MOST_NAMED else "")
        unknown = self.library if self.library == REDISSON else "-"
        where = (unknown, "-", "-")
        if identity.host is not None:
            where = (short(identity.host), str(identity.pid), short(identity.client_name or "-"))
        return (*where, short(self.id[:8] or "-"), str(len(self.names)), listed)


def run(parsed: argparse.Namespace) -> int:
    """List the clients; returns the exit code."""
    return asked(parsed, verb)


async def verb(parsed: argparse.Namespace, servers: Servers) -> int:
    """Print the clients that hold locks on *servers*; returns the exit code."""
    with Progress() as progress:
        clients = gathered(await Reader(servers, progress).locks())
    if parsed.json:
        write(json.dumps({"clients": [each.as_dict() for each in clients]}))
    elif clients:
        heading, *lines = aligned([_HEADINGS, *(each.row() for each in clients)], terminal.width(), (5, 0))
        write("\n".join([terminal.bold(heading), *lines]))
    else:
        print(f"aiolock: no client holds a lock on {', '.join(servers.primaries)}", file=sys.stderr)
    return 0


def gathered(locks: Iterable[Lock]) -> list[Client]:
    """The clients that hold *locks*, those that hold most first."""
    clients: dict[str, Client] = {}
    for lock in locks:
        for hold in lock.holds:
            client = clients.setdefault(hold.client, Client(hold.client, hold.library))
            client.names.append(lock.name)
            if hold.library == REDISSON:
                client.library = REDISSON
    return sorted(clients.values(), key=lambda each: (-len(each.names), each.identity.host or "", each.id))
