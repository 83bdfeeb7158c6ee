"""`aiolock inspect`: all that is known of one lock, as text or as JSON."""

from argparse import ArgumentParser, Namespace
from datetime import UTC, datetime

from aiolock._cli import options, output
from aiolock._cli.locks.hashes import REDISSON
from aiolock._cli.locks.model import FOREIGN, FREE, Hold, Lock, Outcome
from aiolock._cli.locks.names import checked
from aiolock._cli.locks.reader import Reader
from aiolock._cli.locks.words import duration, waiting, who
from aiolock._cli.output import write, write_json
from aiolock._cli.servers import Servers, asked
from aiolock._cli.verb import FAILED, common

SUMMARY = "show everything that is known about one lock"

DESCRIPTION = """\
Shows everything that is known about one lock: kind, server, holders, since when and for how long they hold it,
tokens, who waits, and the line of a fair lock. Give the name as its key is called, with the prefix. It changes
nothing.
"""

EPILOG = f"""\
examples:
  aiolock inspect shop:orders:42
  aiolock inspect shop:orders:42 --json | jq .holds[0].token

{options.ENVIRONMENT}"""

EXIT_CODES = common("2", "69", "130", "141") | {"0": "somebody holds the lock", "1": "nobody holds it"}

_MOST_SHOWN = 50
# Characters; the JSON has up to a thousand.
_MOST_OF_A_RESULT = 200
_ONE_VOTE = "This server is one of a quorum: a majority of its servers decides. Ask the others, too."
_INDENT = " " * 2

Field = tuple[str, object]


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of the verb to *parser*."""
    options.add_name(parser)
    options.add_server(parser, as_json="one JSON object instead of text")


def run(parsed: Namespace) -> int:
    """Run the verb; returns the exit code."""
    return asked(parsed, inspect)


async def inspect(parsed: Namespace, servers: Servers) -> int:
    """Print the lock whose name was *parsed*; returns the exit code."""
    name, reader = checked(parsed.name), Reader(servers)
    found, of_a_quorum = await reader.named(name), await reader.is_of_a_quorum(name)
    is_held = any(lock.outcome is None for lock in found)
    if not found:
        kind = await reader.foreign(name)
        last, server = await reader.last_token(name), servers.address_of(name)
        found = [Lock(name=name, kind=FOREIGN if kind else FREE, server=server, last_token=last, type=kind)]
    if parsed.json:
        first, *also = found
        write_json({**first.as_dict(), "of_a_quorum": of_a_quorum, "also": also})
    else:
        write("\n\n".join([*map(text, found), *([_ONE_VOTE] if of_a_quorum else [])]))
    return 0 if is_held else FAILED


def text(lock: Lock) -> str:
    """The text for people."""
    lines = [output.bold(output.short(lock.name))]
    lines += _fields(
        ("kind", _kind(lock)),
        *(_of_an_outcome(lock.outcome) if lock.outcome else ()),
        ("available", lock.available),
        ("last token", lock.last_token),
        ("waiting", waiting(lock)),
        ("server", lock.server),
    )
    for number, hold in enumerate(lock.holds[:_MOST_SHOWN], 1):
        lines += ["", output.bold(f"{_INDENT}holder {number}" if len(lock.holds) > 1 else f"{_INDENT}holder")]
        lines += _fields(*_of_a_hold(hold), indent=_INDENT)
    if (more := lock.more + len(lock.holds[_MOST_SHOWN:])) > 0:
        lines += ["", f"{_INDENT}and {more} more"]
    if lock.line:
        lines += ["", output.bold(f"{_INDENT}line")]
        lines += [f"{_INDENT * 2}{at}  {output.short(each)}" for at, each in enumerate(lock.line[:_MOST_SHOWN], 1)]
    return "\n".join(lines)


def _kind(lock: Lock) -> str:
    if lock.kind == FOREIGN:
        return f"{FOREIGN}, but a Redis {lock.type}"
    return "free: nobody holds it" if lock.kind == FREE else lock.kind


def _of_an_outcome(outcome: Outcome) -> list[Field]:
    came_to = "failed" if outcome.failed else "result"
    shown = outcome.text is not None and len(outcome.text) <= _MOST_OF_A_RESULT
    return [
        ("state", f"{'failed' if outcome.failed else 'done'}: it is not run again"),
        ("for", f"another {duration(outcome.left)}"),
        (came_to, output.short(outcome.text or "") if shown else f"{outcome.size:,} bytes" if outcome.size else None),
    ]


def _of_a_hold(hold: Hold) -> list[Field]:
    since = None if hold.since is None else datetime.fromtimestamp(hold.since, UTC)
    age = f"{since:%Y-%m-%d %H:%M:%S} UTC, {duration(hold.age)} ago" if since is not None else None
    return [
        ("who", who(hold)),
        ("mode", hold.mode),
        ("client", output.short(hold.client)),
        ("by", hold.library if hold.library == REDISSON else None),
        ("holds", hold.holds),
        ("since", age),
        ("left", duration(hold.left)),
        ("token", hold.token),
    ]


def _fields(*fields: Field, indent: str = "") -> list[str]:
    return [f"{indent}{_INDENT}{name:<10}  {value}" for name, value in fields if value not in (None, "")]
