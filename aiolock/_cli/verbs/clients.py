"""`aiolock clients`: the clients that hold locks, as a table or as JSON."""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from dataclasses import dataclass, field

from aiolock._cli import options
from aiolock._cli.locks.hashes import REDISSON
from aiolock._cli.locks.model import Lock
from aiolock._cli.locks.progress import Progress
from aiolock._cli.locks.reader import Reader
from aiolock._cli.locks.words import table
from aiolock._cli.output import short, tell, write, write_json
from aiolock._cli.servers import Servers, asked
from aiolock._cli.verb import common
from aiolock._identity import Identity, identity_of

SUMMARY = "list the clients that hold locks: host, process, and how many locks"

DESCRIPTION = """\
Lists the clients that hold locks: where they run, and what they hold. Of a client of Redisson only the id is known.
It asks every primary with SCAN, page by page, and changes nothing.
"""

EPILOG = f"""\
examples:
  aiolock clients
  aiolock clients --json | jq -r '.clients[] | select(.held > 100) | .host'

{options.ENVIRONMENT}"""

EXIT_CODES = common("0", "2", "69", "130", "141")

_HEADINGS = ("HOST", "PID", "NAME", "CLIENT", "HELD", "LOCKS")
_MAY_SHRINK = (5, 0)
_MOST_NAMED = 20


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of the verb to *parser*."""
    options.add_server(parser, as_json="one JSON object instead of a table")


def run(parsed: Namespace) -> int:
    """Run the verb; returns the exit code."""
    return asked(parsed, clients)


async def clients(parsed: Namespace, servers: Servers) -> int:
    """Print the clients that hold locks on *servers*; returns the exit code."""
    with Progress() as progress:
        found = gathered(await Reader(servers, progress).locks())
    if parsed.json:
        write_json({"clients": found})
    elif found:
        write(table([_HEADINGS, *(each.row() for each in found)], _MAY_SHRINK))
    else:
        tell(f"no client holds a lock on {', '.join(servers.primaries)}")
    return 0


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
