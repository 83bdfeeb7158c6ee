"""A lock in a shell, by tickets: the common parts of `acquire`, `renew`, `adopt` and `release`."""

import asyncio
import os
import signal
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Awaitable, Callable

from redis.asyncio import Redis, RedisCluster

from aiolock import Lease, LockClient, LockConfig, MultiLease
from aiolock._cli import options
from aiolock._cli.failure import refused_as_usage, told_as_json
from aiolock._cli.output import write, write_json
from aiolock._cli.servers import asked
from aiolock._cli.verb import USAGE, VerbError, common
from aiolock._core.ticket import Ticket

# People who look at the holder see that the lock is from the shell.
OWNER = "shell"
VARIABLE = "AIOLOCK_TICKET"

ENVIRONMENT = f"""\
{options.ENVIRONMENT}\
  {VARIABLE}  the ticket, when there is none among the arguments
"""

EXIT_CODES = common("0", "2", "69", "130", "141") | {
    "76": "the ticket is of no use any more: it was used, its time is over, or the lock was freed by force",
}

Client = Redis | RedisCluster
Act = Callable[[Namespace, Client], Awaitable[int]]


def add_ticket(parser: ArgumentParser) -> None:
    """Add the arguments for the ticket and the server to *parser*."""
    what = (
        f"the ticket from acquire, adopt or lease.detach(); - reads standard input; by default {VARIABLE}. An argument "
        "can be seen in the list of processes"
    )
    parser.add_argument("ticket", metavar="TICKET", nargs="?", type=options.not_a_url, help=what)
    options.add_server(parser, as_json="one JSON object")


def done(parsed: Namespace, act: Act) -> int:
    """Do what *act* does, with the ticket if there is one among the arguments; returns the exit code."""

    def run() -> int:
        read_ticket(parsed)
        return asked(parsed, lambda parsed, servers: answered(parsed, servers.client, act))

    return told_as_json(parsed, run)


def read_ticket(parsed: Namespace) -> None:
    """Put the ticket into the arguments, in place of its text; `VerbError`, before a server is asked, if it is none."""
    if "ticket" in parsed:
        with refused_as_usage():
            parsed.ticket = Ticket.read(_text_of(parsed))


async def answered(parsed: Namespace, redis: Client, act: Act) -> int:
    """Do what *act* does; `VerbError` if the ticket, or a name or prefix in it, cannot be used."""
    with refused_as_usage():
        return await act(parsed, redis)


def _text_of(parsed: Namespace) -> str:
    """The ticket that the arguments, standard input or the environment has."""
    if parsed.ticket == "-":
        return _standard_input()
    ticket = parsed.ticket or os.environ.get(VARIABLE)
    if not ticket:
        raise VerbError(f"give a ticket: as an argument, in {VARIABLE}, or on standard input with -", USAGE)
    return str(ticket)


def _standard_input() -> str:
    if sys.stdin is None:
        raise VerbError(f"standard input is closed: give the ticket there, or in {VARIABLE}", USAGE)
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise VerbError("standard input has no ticket: it is no text", USAGE) from error


def client_of(redis: Client, ticket: Ticket) -> LockClient:
    """A client with the prefix of the *ticket*."""
    return LockClient(redis, config=LockConfig(prefix=ticket.parts[0].prefix))


async def adopted(locks: LockClient, ticket: Ticket) -> Lease | MultiLease:
    """The lease of the lock, or of the locks, of the *ticket*, which this adopts."""
    return await locks.adopt(ticket.text(), kind=ticket.kind, owner=OWNER)


async def hand_over(parsed: Namespace, lease: Lease | MultiLease, keep: float) -> int:
    """Detach the lock, and print its ticket; a lock whose ticket nobody gets is released at the end of the block."""
    async with lease:
        ticket = await lease.detach(keep)
        tokens = dict(lease.tokens) if isinstance(lease, MultiLease) else {lease.name: lease.token}
        await _ignore_interrupts()
        if parsed.json:
            write_json({"ticket": ticket, "tokens": tokens, "lease": keep})
        else:
            write(ticket)
    return 0


async def _ignore_interrupts() -> None:
    """
    Let Ctrl-C change nothing from now on; a Ctrl-C that came before cancels here.

    If the exit code were not 0, a shell would throw away the ticket that was printed.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    await asyncio.sleep(0)


def confirm(parsed: Namespace, ticket: Ticket, **more: object) -> int:
    """Say in JSON, if that is wanted, which locks the *ticket* is for, and *more*; returns the exit code."""
    if parsed.json:
        write_json({"locks": [part.name for part in ticket.parts], **more})
    return 0
