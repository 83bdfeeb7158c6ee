"""
A ticket: the text that hands a detached lock over to another process.

It contains the name and the kind of the lock, and a secret. Redis does not know the secret, only its digest: it is part
of the ids of the owner and the acquisition that have the lock meanwhile.
"""

import json
import re
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final, Literal, cast

from aiolock._identity import detached_id
from aiolock._scripts import Claim, Want
from aiolock._types import LONGEST_TEXT, LockKind, lease_seconds, quoted

MULTI: Final = "multi_lock"
# Locks of one ticket: its adopter asks for all of them in one turn of the loop.
MOST_PARTS: Final = 1000
TicketKind = Literal[LockKind, "multi_lock"]

# The beginning of a ticket, with the version of its format.
_BEGINS = "aiolock1."
_KINDS = ("lock", "fair_lock", "read_lock", "write_lock", "semaphore")
# Bytes.
_SECRET = 16
_SECRETS = re.compile(r"[\w-]{22}", re.ASCII)
# Bytes: the id of a named owner consists of its name and the id of its client.
_LONGEST_FIELD = 2 * LONGEST_TEXT
# Hexadecimal digits: as many bits as the secret has.
_DIGEST = 32
_MALFORMED = (
    "this is not a ticket, or only a part of one: give the whole text that `Lease.detach` or `aiolock acquire` returned"
)


@dataclass(frozen=True, slots=True)
class Part:
    """
    One detached hold of a ticket.

    *by* is the owner that has detached it, *token* the token of that owner's grant, *keep* the seconds for which it was
    detached, and *amount* the number of permits.
    """

    kind: LockKind
    prefix: str
    name: str
    token: int
    by: str
    keep: float
    amount: tuple[int, ...]
    secret: str = field(repr=False)

    @classmethod
    def of(cls, claim: Claim, token: int, keep: float) -> "Part":
        """A new detached hold that replaces the hold of *claim* and *token*, for *keep* seconds."""
        want = claim.want
        prefix = want.keys.lock.removesuffix(want.keys.name)
        secret = secrets.token_urlsafe(_SECRET)
        return cls(want.scripts.kind, prefix, want.keys.name, token, claim.owner, keep, want.amount, secret)

    def claim(self, want: Want) -> Claim:
        """The acquisition that has what is *wanted* while it is detached."""
        owner = detached_id(self.by, sha256(self.secret.encode()).hexdigest()[:_DIGEST])
        id = owner if want.scripts.reentrant else f"{owner}#1"
        return Claim(want, owner, id, "", want.keys.of_owner(owner))

    def row(self) -> list[object]:
        """The fields of this part, in their order in a ticket."""
        return [self.kind, self.prefix, self.name, self.token, self.by, self.keep, *self.amount, self.secret]


@dataclass(frozen=True, slots=True)
class Ticket:
    """A ticket: the *parts* of a multi lock, or the only part of another lock."""

    kind: TicketKind
    parts: Sequence[Part]

    def text(self) -> str:
        """The text of the ticket, for its bearer."""
        rows = [self.kind, *(part.row() for part in self.parts)]
        packed = json.dumps(rows, separators=(",", ":"), ensure_ascii=False).encode()
        return _BEGINS + urlsafe_b64encode(packed).decode().rstrip("=")

    @classmethod
    def read(cls, text: str) -> "Ticket":
        """The ticket with this *text*; no error contains the text, because it has a secret."""
        if not isinstance(text, str):
            raise TypeError(f"ticket must be a str, not {type(text).__name__}")
        opened = _opened(text.strip())
        # Raised here and not in `_opened`: the errors of a parser, as the context, would show the text.
        if opened is None:
            raise ValueError(_MALFORMED)
        return opened

    def check(self, prefix: str, name: str | Sequence[str] | None, kind: str | None) -> None:
        """Raise if the ticket is for another *prefix*, *name* or *kind*."""
        others = {part.prefix for part in self.parts} - {prefix}
        if others:
            raise ValueError(f"this ticket is for the prefix {quoted(others.pop())}, not for this client's, {prefix!r}")
        if kind is not None and kind != self.kind:
            raise ValueError(
                f"this ticket is for a {self.kind!r}, not for a {kind!r}: write adopt(..., kind={self.kind!r})"
            )
        names = [part.name for part in self.parts]
        if name is not None and sorted([name] if isinstance(name, str) else name) != sorted(names):
            raise ValueError(f"this ticket is for {', '.join(map(quoted, names))}, not for {name!r}")


def _opened(text: str) -> Ticket | None:
    """The ticket with this *text*; ``None`` if the text is malformed."""
    if not text.startswith(_BEGINS):
        return None
    try:
        packed = text.removeprefix(_BEGINS).encode("ascii")
        kind, *rows = json.loads(urlsafe_b64decode(packed + b"=" * (-len(packed) % 4)))
        parts = [_part(row) for row in rows] if len(rows) <= MOST_PARTS else []
    except (ValueError, TypeError, RecursionError):
        return None
    kinds = (MULTI,) if len(parts) != 1 else (MULTI, parts[0].kind)
    return Ticket(kind, parts) if parts and kind in kinds else None


def _part(row: Any) -> Part:
    """The part in *row*; `ValueError` or `TypeError` if the row is malformed."""
    kind, prefix, name, token, by, keep, *amount, secret = row
    texts = (kind, prefix, name, by, secret)
    numbers = (token, *amount)
    if not all(isinstance(each, str) for each in texts) or not all(type(each) is int for each in numbers):
        raise ValueError("a field of another type")
    if max(len(each.encode()) for each in texts) > _LONGEST_FIELD:
        raise ValueError("a text that is too long")
    lease_seconds(keep)
    permits = kind == "semaphore"
    if kind not in _KINDS or len(amount) != permits or not _SECRETS.fullmatch(secret) or min(numbers) < 0:
        raise ValueError("no value of that field")
    return Part(cast("LockKind", kind), prefix, name, token, by, float(keep), tuple(amount), secret)
