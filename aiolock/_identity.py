"""
The ids of clients and of owners.

The id of a client contains its identity: ``RANDOM@HOST/PID/NAME``, or ``RANDOM@HOST/PID`` without a name. The id of an
owner is ``CLIENT:NUMBER`` for a task, ``CLIENT:named:NAME``, or, while the lock waits for the bearer of a ticket,
``CLIENT:detached:DIGEST:OWNER``.

A host and a name are percent-encoded as in a URL, so that an id has no colon, space, brace or ``#``: these characters
separate the parts of owners' and permits' ids, and of Redis keys, which contain the id. Redisson takes any text as an
id.
"""

import os
import re
import socket
from dataclasses import asdict, dataclass
from typing import NamedTuple
from urllib.parse import quote, unquote
from uuid import uuid4

# The owner of a lock that was released, and that `at_least` keeps: no task and no named owner has such an id.
KEPT = "kept"
NAMED = "named:"
_DETACHED = "detached:"
# The most characters of a host or a name in an id. No host of Linux has a longer name.
_LONGEST = 64
# A lock works with any id: of a client whose id does not match, only the host, the process and the name are unknown. So
# the format may grow at its end, if each shorter form is still read; an older version of aiolock then shows nothing of
# a longer id.
_ID = re.compile(r"[0-9a-f]{32}@(?P<host>[\w.~%-]+)/(?P<pid>\d{1,18})(?:/(?P<name>[\w.~%-]+))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a client; ``None`` for what its id, of Redisson or of an older aiolock, does not contain."""

    host: str | None = None
    pid: int | None = None
    client_name: str | None = None

    def as_dict(self) -> dict[str, object]:
        """The fields of the JSON object, by their names there."""
        return asdict(self)


class Owner(NamedTuple):
    """
    An owner within its *client*: *text* is the number of a task or thread, or the name of an owner that is *named*.

    *detached*: it does not hold its lock any more, which waits for the bearer of a ticket.
    """

    client: str
    text: str
    named: bool
    detached: bool


def owner_of(id: str) -> Owner:
    """The owner with that *id*."""
    client, _, owner = id.partition(":")
    if detached := owner.startswith(_DETACHED):
        owner = owner.removeprefix(_DETACHED).partition(":")[2]
    return Owner(client, owner.removeprefix(NAMED), owner.startswith(NAMED), detached)


def detached_id(owner: str, digest: str) -> str:
    """The id that has the lock of *owner* while it is detached; only the ticket with that *digest* gets it."""
    client, _, within = owner.partition(":")
    return f"{client}:{_DETACHED}{digest}:{within}"


def new_id(name: str | None) -> str:
    """An id for a client of this process that is called *name*; no other client ever has it."""
    parts = [socket.gethostname() or "localhost", str(os.getpid()), *([name] if name else [])]
    return f"{uuid4().hex}@{'/'.join(map(_encoded, parts))}"


def random_part(client: str) -> str:
    """The part of the id *client* that is unique by itself."""
    return client.partition("@")[0]


def identity_of(client: str) -> Identity:
    """The identity in the id *client*."""
    said = _ID.fullmatch(client)
    if said is None:
        return Identity()
    host, pid, name = said.groups()
    return Identity(unquote(host), int(pid), None if name is None else unquote(name))


def _encoded(text: str) -> str:
    """*text* in the form for an id; a long text loses its end."""
    characters = [quote(each, safe="", errors="replace") for each in text[:_LONGEST]]
    while sum(map(len, characters)) > _LONGEST:
        characters.pop()
    return "".join(characters)
