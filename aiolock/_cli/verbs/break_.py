"""`aiolock break`: shows the holders of a lock, asks for confirmation, and frees the lock from exactly those."""

import signal
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from uuid import uuid4

from aiolock._cli import options
from aiolock._cli.breaking.scripts import breaking, can_break
from aiolock._cli.locks.model import FOREIGN, Hold, Lock
from aiolock._cli.locks.names import checked
from aiolock._cli.locks.reader import Reader
from aiolock._cli.locks.words import duration, how
from aiolock._cli.output import has_keyboard, tell, write, write_json, write_question
from aiolock._cli.servers import Servers, asked
from aiolock._cli.verb import FAILED, NO_LOCK, USAGE, VerbError, common
from aiolock._keys import LockKeys

SUMMARY = "free a lock from its present holder, and from nobody else"

DESCRIPTION = """\
Shows the holders of the lock, asks for confirmation (unless --yes is given), and frees the lock from those holders.
If the lock was granted to someone else in the meantime, that grant is left alone. A key that is not a lock is left
alone, too.

The holder notices the loss with its next renewal, within a third of its lease, or at once if another task of its
client gets the lock. Until then it keeps working, and only the fencing token protects your data from it.
"""

EPILOG = f"""\
examples:
  aiolock break shop:orders:42
  aiolock break shop:orders:42 --token 1795551705616179 --yes
  aiolock break api --client dffaed68

{options.ENVIRONMENT}"""

EXIT_CODES = common("0", "69", "130", "141") | NO_LOCK | {"1": "nothing was freed"}

_ONE_VOTE = "this server is one of a quorum: the lock is free when a majority of its servers is freed from that holder"


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of the verb to *parser*."""
    options.add_name(parser)
    parser.add_argument("--token", type=options.number, metavar="N", help="free only the grant that has this token")
    client = "free only what this client holds; the beginning of its id will do"
    parser.add_argument("--client", type=options.not_empty, metavar="ID", help=client)
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    options.add_server(parser, as_json="one JSON object that says what was done")


def run(parsed: Namespace) -> int:
    """Run the verb; returns the exit code."""
    return asked(parsed, break_)


async def break_(parsed: Namespace, servers: Servers) -> int:
    """Free the lock whose name was *parsed*; returns the exit code."""
    reader = Reader(servers)
    found = await reader.named(checked(parsed.name))
    if not found and (kind := await reader.foreign(parsed.name)):
        return _nothing(parsed, f"it is {FOREIGN}, but a Redis {kind}", USAGE)
    meant = [(lock, [hold for hold in lock.holds if _is_meant(parsed, hold)]) for lock in found if can_break(lock)]
    meant = [(lock, holds) for lock, holds in meant if holds]
    if not meant:
        return _nothing(parsed, _why_nothing(found))
    if len(meant) > 1:
        raise VerbError(f"{parsed.name!r} is a lock and a body of once, and both are held: pass --token N", USAGE)
    [(lock, chosen)] = meant
    if await reader.is_of_a_quorum(lock.name):
        tell(_ONE_VOTE)
    if not parsed.yes and not _agreed(lock, chosen):
        return _nothing(parsed, "the answer was no")
    return await _break(parsed, reader, lock, chosen)


def _why_nothing(found: Sequence[Lock]) -> str:
    if holds := [hold for lock in found for hold in lock.holds]:
        return f"none of its holders is the one that you named; it is held by {'; '.join(map(_named, holds[:5]))}"
    for lock in found:
        if lock.outcome is not None:
            key = LockKeys.of_once(lock.name, "").lock
            return f"it has run, and nobody holds it; to have it run again, delete the key {key!r}"
        return f"a {lock.kind} has no owner, and there is nothing to free"
    return "nobody holds it"


def _is_meant(parsed: Namespace, hold: Hold) -> bool:
    return parsed.token in (None, hold.token) and (parsed.client is None or hold.client.startswith(parsed.client))


def _agreed(lock: Lock, chosen: Sequence[Hold]) -> bool:
    if not has_keyboard():
        raise VerbError("standard input is not a terminal, so there is nobody to ask: pass --yes to free it", USAGE)
    lines = [f"{lock.kind} {lock.name!r} is held by"]
    for hold in chosen:
        age = "" if hold.age is None else f", for {duration(hold.age)}"
        token = "" if hold.token is None else f", token {hold.token}"
        lines.append(f"  {how(hold)}{age}{token}")
    return _answer("\n".join([*lines, "Free it? [y/N] "])).strip().lower() in ("y", "yes")


def _answer(question: str) -> str:
    """The user's answer. Ctrl-C ends the question at once; asyncio would only take note of it, and read on."""
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        write_question(question)
        return sys.stdin.readline()
    finally:
        signal.signal(signal.SIGINT, usual)


async def _break(parsed: Namespace, reader: Reader, lock: Lock, chosen: Sequence[Hold]) -> int:
    node, freed, kept = reader.node_of(lock.name), list[Hold](), list[Hold]()
    for hold in chosen:
        was_freed = await node.run(*breaking(lock, hold, f"break:{uuid4()}", node.publish))
        (freed if was_freed else kept).append(hold)
    if parsed.json:
        write_json({"name": lock.name, "freed": freed, "left_alone": kept})
    else:
        for hold in freed:
            write(f"freed {lock.name!r} from {_named(hold)}")
        for hold in kept:
            write(f"left {lock.name!r} alone: {_named(hold)} does not hold it any more")
    return 0 if freed else FAILED


def _nothing(parsed: Namespace, why: str, code: int = FAILED) -> int:
    if parsed.json:
        write_json({"name": parsed.name, "freed": [], "left_alone": [], "why": why})
    else:
        write(f"{parsed.name!r} was not freed: {why}")
    return code


def _named(hold: Hold) -> str:
    return how(hold) + ("" if hold.token is None else f" (token {hold.token})")
