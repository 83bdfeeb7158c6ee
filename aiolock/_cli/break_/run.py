"""`run`: shows the holders of the lock, asks for confirmation, frees the lock from exactly those, and reports it."""

import argparse
import json
import sys
from collections.abc import Sequence
from uuid import uuid4

from aiolock._cli.break_.scripts import breaking, can_break
from aiolock._cli.exit_codes import FAILED, USAGE, VerbError
from aiolock._cli.locks.model import FOREIGN, Hold, Lock
from aiolock._cli.locks.names import checked
from aiolock._cli.locks.reader import Reader
from aiolock._cli.locks.words import duration, how
from aiolock._cli.output import write
from aiolock._cli.servers import Servers, asked
from aiolock._cli.terminal import has_keyboard
from aiolock._keys import LockKeys

_ONE_VOTE = "this server is one of a quorum: the lock is free when a majority of its servers is freed from that holder"


def run(parsed: argparse.Namespace) -> int:
    """Free the lock; returns the exit code."""
    return asked(parsed, verb)


async def verb(parsed: argparse.Namespace, servers: Servers) -> int:
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
        print(f"aiolock: {_ONE_VOTE}", file=sys.stderr)
    if not parsed.yes and not _agreed(lock, chosen):
        return _nothing(parsed, "the answer was no")
    return await _break(parsed, reader, lock, chosen)


def _why_nothing(found: Sequence[Lock]) -> str:
    if holds := [hold for lock in found for hold in lock.holds]:
        return f"it is held, but not by that grant; by {_listed(holds)}"
    for lock in found:
        if lock.outcome is not None:
            key = LockKeys.of_once(lock.name, "").lock
            return f"it has run, and nobody holds it; to have it run again, delete the key {key!r}"
        return f"a {lock.kind} has no owner, and there is nothing to free"
    return "nobody holds it"


def _is_meant(parsed: argparse.Namespace, hold: Hold) -> bool:
    return parsed.token in (None, hold.token) and (parsed.client is None or hold.client.startswith(parsed.client))


def _agreed(lock: Lock, chosen: Sequence[Hold]) -> bool:
    if not has_keyboard():
        raise VerbError("standard input is not a terminal, so there is nobody to ask: pass --yes to free it", USAGE)
    print(f"{lock.kind} {lock.name!r} is held by", file=sys.stderr)
    for hold in chosen:
        age = "" if hold.age is None else f", for {duration(hold.age)}"
        token = "" if hold.token is None else f", token {hold.token}"
        print(f"  {how(hold)}{age}{token}", file=sys.stderr)
    print("Free it? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


async def _break(parsed: argparse.Namespace, reader: Reader, lock: Lock, chosen: Sequence[Hold]) -> int:
    node, freed, kept = reader.node_of(lock.name), list[Hold](), list[Hold]()
    for hold in chosen:
        was_freed = await node.run(*breaking(lock, hold, f"break:{uuid4()}", node.publish))
        (freed if was_freed else kept).append(hold)
    if parsed.json:
        _write_json(lock.name, freed, kept)
    else:
        for hold in freed:
            write(f"freed {lock.name!r} from {_named(hold)}")
        for hold in kept:
            write(f"left {lock.name!r} alone: {_named(hold)} does not hold it any more")
    return 0 if freed else FAILED


def _nothing(parsed: argparse.Namespace, why: str, code: int = FAILED) -> int:
    if parsed.json:
        _write_json(parsed.name, [], [], why=why)
    else:
        write(f"nothing was freed of {parsed.name!r}: {why}")
    return code


def _write_json(name: str, freed: Sequence[Hold], kept: Sequence[Hold], **more: str) -> None:
    done = {"freed": [hold.as_dict() for hold in freed], "left_alone": [hold.as_dict() for hold in kept]}
    write(json.dumps({"name": name, **done, **more}))


def _listed(holds: Sequence[Hold]) -> str:
    return "; ".join(map(_named, holds[:5]))


def _named(hold: Hold) -> str:
    return how(hold) + ("" if hold.token is None else f" (token {hold.token})")
