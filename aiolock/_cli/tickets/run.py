"""The verbs about tickets: each makes a client, asks the server, and says how it went."""

import argparse
import asyncio
import json
import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager

from redis.asyncio import Redis, RedisCluster

from aiolock import Lease, LeaseLostError, LockClient, LockConfig, MultiLease
from aiolock._cli.exit_codes import LOST, NOT_GRANTED, USAGE, VerbError
from aiolock._cli.output import write
from aiolock._cli.run.wanted import wanted_of
from aiolock._cli.servers import asked
from aiolock._cli.tickets.options import ticket_of
from aiolock._core.ticket import Ticket

# The owner of a lock from the shell, for people who look at the holder.
_OWNER = "shell"

Client = Redis | RedisCluster
Verb = Callable[[argparse.Namespace, Client], Awaitable[int]]


def done(parsed: argparse.Namespace, verb: Verb) -> int:
    """Do what the *verb* does; returns the exit code."""
    logging.getLogger("aiolock").addHandler(logging.NullHandler())
    try:
        read_ticket(parsed)
        return asked(parsed, lambda parsed, servers: answered(parsed, servers.client, verb))
    except VerbError as error:
        if not parsed.json:
            raise
        print(json.dumps({"event": "failed", "words": str(error)}), file=sys.stderr)
        return error.code


def read_ticket(parsed: argparse.Namespace) -> None:
    """Put the ticket into the arguments, in place of its text; `VerbError`, before a server is asked, if it is none."""
    if "ticket" in parsed:
        with _with_exit_codes():
            parsed.ticket = Ticket.read(ticket_of(parsed))


async def answered(parsed: argparse.Namespace, redis: Client, verb: Verb) -> int:
    """Run the *verb*; `VerbError` if the lock is lost, or the ticket or a name cannot be used."""
    with _with_exit_codes():
        return await verb(parsed, redis)


@contextmanager
def _with_exit_codes() -> Iterator[None]:
    """Turn errors of aiolock about a lock, a ticket or a name into a `VerbError`."""
    try:
        yield
    except LeaseLostError as error:
        raise VerbError(str(error), LOST) from error
    except ValueError as error:
        raise VerbError(str(error), USAGE) from error


async def acquire(parsed: argparse.Namespace, redis: Client) -> int:
    """Take a lock, and print its ticket."""
    async with LockClient(redis) as locks:
        lease = await wanted_of(locks, parsed, _OWNER).try_acquire(parsed.wait)
        if lease is None:
            raise VerbError(f"lock {parsed.name!r} was not granted within {parsed.wait:g} s", NOT_GRANTED)
        return await _hand_over(parsed, lease, parsed.lease)


async def adopt(parsed: argparse.Namespace, redis: Client) -> int:
    """Take over what a ticket is for, and print another ticket."""
    ticket: Ticket = parsed.ticket
    keep = ticket.parts[0].keep if parsed.lease is None else parsed.lease
    async with _client(redis, ticket) as locks:
        return await _hand_over(parsed, await _adopted(locks, ticket), keep)


async def renew(parsed: argparse.Namespace, redis: Client) -> int:
    """Let what a ticket is for stay held for longer."""
    ticket: Ticket = parsed.ticket
    async with _client(redis, ticket) as locks:
        left = await locks._detached(ticket, _OWNER).prolong(parsed.lease)
    _say(parsed, "", {"locks": [part.name for part in ticket.parts], "left": left})
    return 0


async def release(parsed: argparse.Namespace, redis: Client) -> int:
    """Release what a ticket is for."""
    ticket: Ticket = parsed.ticket
    async with _client(redis, ticket) as locks:
        await (await _adopted(locks, ticket)).release()
    _say(parsed, "", {"locks": [part.name for part in ticket.parts]})
    return 0


def _client(redis: Client, ticket: Ticket) -> LockClient:
    """A client with the prefix of the *ticket*."""
    return LockClient(redis, config=LockConfig(prefix=ticket.parts[0].prefix))


async def _adopted(locks: LockClient, ticket: Ticket) -> Lease | MultiLease:
    adopted: Lease | MultiLease = await locks.adopt(ticket.text(), kind=ticket.kind, owner=_OWNER)
    return adopted


async def _hand_over(parsed: argparse.Namespace, lease: Lease | MultiLease, keep: float) -> int:
    """Detach the lock, and print its ticket; a lock whose ticket nobody gets is released at the end of the block."""
    async with lease:
        ticket = await lease.detach(keep)
        tokens = dict(lease.tokens) if isinstance(lease, MultiLease) else {lease.name: lease.token}
        await _ignore_interrupts()
        _say(parsed, ticket, {"ticket": ticket, "tokens": tokens, "lease": keep})
    return 0


async def _ignore_interrupts() -> None:
    """
    Let Ctrl-C change nothing from now on; one that came before cancels here.

    With another exit code than 0, a shell would throw the ticket away that was printed.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    await asyncio.sleep(0)


def _say(parsed: argparse.Namespace, words: str, data: Mapping[str, object]) -> None:
    if parsed.json:
        write(json.dumps(data))
    elif words:
        write(words)
