"""
Requests with an `Idempotency-Key`: the first request with a key is carried out, and its response answers all later
ones.

As https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/ says: 400 without a key, 409 while the
first request is carried out, 422 for another request with the same key.
"""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from types import TracebackType
from typing import NamedTuple, NoReturn

from aiolock import AioLockError, LockClient, Turn
from aiolock._log import log
from aiolock._primitives.once import MOST_BYTES
from aiolock._types import Duration, OnUnavailable, check_choice, lease_seconds
from aiolock._web.handler import HandlerBlock
from aiolock._web.problem import CONFLICT, OUT_OF_SERVICE, Problem

HEADER = "Idempotency-Key"
REPLAYED = "Idempotent-Replayed"
DAY = 86_400
_SERVER_ERROR = 500

# A string of RFC 8941, or, as many clients send it, the same without quotation marks.
_QUOTED = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])+)"')
_PLAIN = re.compile(r"[!#-+\--:<-\[\]-~]+")
_LONGEST_KEY = 255

# Headers that belong to one connection or exchange, and cookies: these are secrets, and of the first exchange only.
_NOT_KEPT = frozenset(
    {
        *("connection", "keep-alive", "proxy-authenticate", "te", "trailer", "transfer-encoding", "upgrade"),
        *("content-length", "date", "server", "set-cookie"),
    }
)

Caller = str | int | None


class Answer(NamedTuple):
    """A response that is kept."""

    status: int
    headers: Sequence[tuple[str, str]]
    body: bytes


class BadRequestError(ValueError):
    """A request that cannot be carried out once, for example because its key is missing."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


def key_of(sent: Sequence[str], *, required: bool) -> str | None:
    """The key in the header's *sent* values; ``None`` if there is none, and none is *required*."""
    if not sent and not required:
        return None
    if not sent:
        raise BadRequestError(MISSING)
    value = sent[0].strip()
    quoted = _QUOTED.fullmatch(value)
    key = re.sub(r"\\(.)", r"\1", quoted[1]) if quoted else value if _PLAIN.fullmatch(value) else None
    if len(sent) > 1 or key is None or len(key) > _LONGEST_KEY:
        raise BadRequestError(_NOT_VALID)
    return key


def name_of(endpoint: str, caller: Caller, key: str) -> str:
    """The name under which the response to *key* is kept: each *endpoint* and each *caller* has keys of its own."""
    return f"idempotency:{sha256(json.dumps([endpoint, caller, key]).encode()).hexdigest()}"


def checked_caller(caller: object) -> Caller:
    """*caller*, checked: the result of the user's function for a request."""
    if isinstance(caller, bool) or not isinstance(caller, str | int):
        raise TypeError(f"caller must return a str or an int, the id of the one who sends a request, not {caller!r}")
    return caller


def fingerprint(method: str, target: str, body: bytes) -> str:
    """A digest of the request: of its *target*, including the query, and of its *body*."""
    head = json.dumps([method, target]).encode()
    return sha256(head + b"\n" + body).hexdigest()


def kept_headers(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The *headers* that a repeated response has."""
    return [(name, value) for name, value in headers if name.lower() not in _NOT_KEPT]


class Keeping(NamedTuple):
    """The *seconds* for which answers are kept, and what happens while Redis fails, as in `LockClient.once`."""

    seconds: float
    on_unavailable: OnUnavailable

    @classmethod
    def of(cls, keep: Duration, on_unavailable: OnUnavailable) -> "Keeping":
        """Check the arguments; `TypeError` or `ValueError` for an invalid one."""
        check_choice(on_unavailable, OnUnavailable, "on_unavailable")
        return cls(lease_seconds(keep, "keep"), on_unavailable)


class Run(HandlerBlock):
    """
    A request with the *name* of its key, for an ``async with`` around its handler.

    It gives the answer that is kept, or ``None``: then the handler is to run, and to `keep` its answer as *keeping*
    says. The answer of a handler that fails, also with a status of 500 or more, is not kept.
    """

    _UNANSWERED = f"lock %s: the response of a request that was carried out may not be kept for its {HEADER} (%s)"

    def __init__(
        self,
        locks: LockClient,
        name: str,
        request: str,
        keeping: Keeping,
        refuse: Callable[[Problem, AioLockError | None], NoReturn],
    ) -> None:
        length, on_unavailable = keeping
        once = locks.once(
            name, keep=lambda kept: 0.0 if kept is None else length, wait=0, on_unavailable=on_unavailable
        )
        super().__init__(once, CONFLICT, refuse)
        # The fingerprint of the request.
        self._request = request
        # Set while the handler runs.
        self._turn: Turn | None = None

    async def __aenter__(self) -> Answer | None:
        turn: Turn = await super().__aenter__()
        self._granted = turn.lease
        if turn:
            self._turn = turn
            return None
        await super().__aexit__(None, None, None)
        if not turn.done:
            self._refuse(_OUTSTANDING, None)
        request, answer = _decoded(turn.result)
        if request != self._request:
            self._refuse(_OTHER_REQUEST, None)
        if answer is None:
            self._refuse(_TOO_LARGE, None)
        return answer

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._turn is not None:
            await super().__aexit__(kind, error, trace)

    def keep(self, answer: Answer) -> None:
        """Note the *answer* of the handler, which is kept when the block is left."""
        assert self._turn is not None
        if answer.status >= _SERVER_ERROR:
            return
        kept = _encoded(self._request, answer)
        if len(kept) > MOST_BYTES:
            text = (
                "a response of %d bytes is too large to be kept for its %s, of which there are %d at most: return less"
            )
            log.warning(text, len(answer.body), HEADER, MOST_BYTES)
            kept = _encoded(self._request, None)
        self._turn.result = kept


MISSING = Problem(
    400,
    f"{HEADER} is missing",
    f"This operation needs the header {HEADER}, with a value that you use for no other request.",
    retry=False,
)
_NOT_VALID = Problem(
    400,
    f"{HEADER} is not valid",
    f"{HEADER} must be one string of {_LONGEST_KEY} ASCII characters at most, such as a UUID.",
    retry=False,
)
_OUTSTANDING = Problem(
    CONFLICT, f"A request is outstanding for this {HEADER}", "The first request with this key is not done yet."
)
_OTHER_REQUEST = Problem(
    422,
    f"{HEADER} is already used",
    "Another request had the same key: its body, path or query was different.",
    retry=False,
)
_TOO_LARGE = Problem(
    CONFLICT,
    "The response cannot be repeated",
    "The first request with this key was carried out, and its response was too large to be kept.",
    retry=False,
)


def refusals(*, required: bool) -> list[Problem]:
    """The answers to requests whose key is not valid, is missing though *required*, or came before."""
    missing = [MISSING] if required else []
    return [*missing, _NOT_VALID, _OUTSTANDING, _TOO_LARGE, _OTHER_REQUEST, *OUT_OF_SERVICE]


def _encoded(request: str, answer: Answer | None) -> bytes:
    """The record of the *request*; an *answer* that is too large is left out."""
    status, headers, body = answer or (None, (), b"")
    return json.dumps([request, status, list(headers)]).encode() + b"\n" + body


def _decoded(kept: str | bytes | None) -> tuple[str, Answer | None]:
    assert isinstance(kept, bytes)
    head, _, body = kept.partition(b"\n")
    request, status, headers = json.loads(head)
    if status is None:
        return request, None
    return request, Answer(status, [(name, value) for name, value in headers], body)
