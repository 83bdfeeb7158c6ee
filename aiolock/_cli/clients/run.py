"""`run`: the clients, as a table or as JSON."""

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from time import time

from aiolock._cli import terminal
from aiolock._cli.locks.hashes import REDISSON
from aiolock._cli.locks.model import Card, Lock
from aiolock._cli.locks.progress import Progress
from aiolock._cli.locks.reader import Reader
from aiolock._cli.locks.words import aligned, duration, printable
from aiolock._cli.output import write
from aiolock._cli.servers import Servers, asked

_HEADINGS = ("HOST", "PID", "NAME", "CLIENT", "USED FOR", "HELD", "LOCKS")
_MOST_NAMED = 20


@dataclass(slots=True)
class Client:
    """One client; *names* are the locks that it holds, each as often as it does."""

    id: str
    by: str
    card: Card | None
    names: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        card = self.card
        return {
            "client": self.id,
            "by": self.by,
            "host": card and card.host,
            "pid": card and card.pid,
            "client_name": card and card.name,
            "since": card and card.since,
            "held": len(self.names),
            "locks": sorted(set(self.names)),
        }

    def row(self, now: float) -> tuple[str, ...]:
        """In a table."""
        card = self.card
        names = sorted(set(self.names))
        listed = " ".join(map(printable, names[:_MOST_NAMED])) + (" …" if len(names) > _MOST_NAMED else "")
        unknown = self.by if self.by == REDISSON else "-"
        where = (printable(card.host), str(card.pid), printable(card.name or "-")) if card else (unknown, "-", "-")
        used = duration(max(0.0, now - card.since)) if card else "-"
        return (*where, printable(self.id[:8] or "-"), used, str(len(self.names)), listed)


def run(parsed: argparse.Namespace) -> int:
    """List them; the exit code."""
    return asked(parsed, verb)


async def verb(parsed: argparse.Namespace, servers: Servers) -> int:
    """Print those of *servers*; the exit code."""
    with Progress() as progress:
        reader = Reader(servers, progress)
        clients = gathered(await reader.locks(), await reader.cards())
    if parsed.json:
        write(json.dumps({"clients": [each.as_dict() for each in clients]}))
    elif clients:
        now = time()
        heading, *lines = aligned([_HEADINGS, *(each.row(now) for each in clients)], terminal.width(), (6, 0))
        write("\n".join([terminal.bold(heading), *lines]))
    else:
        print("aiolock: no client holds anything", file=sys.stderr)
    return 0


def gathered(locks: Iterable[Lock], cards: Mapping[str, Card]) -> list[Client]:
    """The clients, those that hold most first."""
    clients = {client: Client(client, "aiolock", card) for client, card in cards.items()}
    for lock in locks:
        for hold in lock.holds:
            client = clients.setdefault(hold.client, Client(hold.client, hold.by, hold.card))
            client.names.append(lock.name)
            if hold.by == REDISSON:
                client.by = REDISSON
    return sorted(clients.values(), key=lambda each: (-len(each.names), each.card.host if each.card else "", each.id))
