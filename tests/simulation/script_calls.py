"""The arguments of scripts, by name: the only place of the simulation that knows their order."""

from typing import Any, NamedTuple

import hiredis

from aiolock._keys import QUORUM_KEY

_OF_LOCKS = frozenset(
    {"lock/acquire", "lock/release", "lock/release_clean", "fair/acquire", "fair/release", "fair/release_clean"}
)
_OF_THE_FAMILY = frozenset({"read_write/acquire", "permit/acquire", "counting_semaphore/acquire", "latch/wait"})
# Each call of these changes the count once, however often it is sent.
_COUNTS = frozenset({"counting_semaphore/acquire", "counting_semaphore/release", "latch/count_down", "latch/set"})
# The script of a release and an acquire, and the place of the acquisition that it releases.
_HAND_OFF, _RELEASED = "lock/hand_off", 9
# The mark after the name of a script: several calls as one.
_SEVERAL = "*"
_LOCK_KEYS = 2
# The numbers of keys and of arguments that the script of a quorum has in front.
_QUORUM_KEY, _QUORUM_ARGUMENTS = QUORUM_KEY.encode(), 3
GRANTED, REFUSED = 1, 0
_RENEWED_FIELDS, _RENEW_ARGUMENTS = 3, 2


class LockCall(NamedTuple):
    """An acquire or a release of a plain or a fair lock."""

    key: bytes
    acquisition: bytes
    is_fair: bool
    is_release: bool
    # The hold count after an acquire or a release.
    holds: int
    # Whether a fair acquire stands in line when it is refused.
    stands_in_line: bool
    status: int


def _lock_calls(script: str, args: list[bytes], answers: list[Any]) -> list[LockCall]:
    """The calls of a script that acquires or releases locks; none of another."""
    name = script.removesuffix(_SEVERAL)
    if name == _HAND_OFF:
        clean = ("lock/release_clean", [*args[:_LOCK_KEYS], *args[_RELEASED:]])
        both = zip((clean, ("lock/acquire", args)), answers, strict=True)
        return [_lock_call(*call, row) for call, row in both if isinstance(row, list)]
    if name not in _OF_LOCKS:
        return []
    of_quorum = args[0] == _QUORUM_KEY
    keys = _LOCK_KEYS + of_quorum
    calls = [args] if name == script else _apart(args, len(answers), keys)
    rows = [answers] if name == script else answers
    more = _QUORUM_ARGUMENTS if of_quorum else 0
    return [
        _lock_call(name, [*call[keys - _LOCK_KEYS : keys], *call[keys + more :]], row)
        for call, row in zip(calls, rows, strict=True)
        if isinstance(row, list)
    ]


def _apart(args: list[bytes], count: int, keys: int) -> list[list[bytes]]:
    """The keys and arguments of each of several calls that were made as one, of *keys* keys each."""
    first = keys * count + 1
    each = (len(args) - first) // count
    return [
        [*args[keys * row : keys * (row + 1)], *args[first + each * row : first + each * (row + 1)]]
        for row in range(count)
    ]


def _lock_call(name: str, args: list[bytes], answer: list[Any]) -> LockCall:
    is_fair, is_release = name.startswith("fair"), name.endswith("release")
    if name.endswith("release_clean"):
        return LockCall(args[0], args[2], is_fair, True, 0, False, int(answer[0]))
    return LockCall(
        key=args[0],
        acquisition=args[3],
        is_fair=is_fair,
        is_release=is_release,
        holds=int(args[5]),
        stands_in_line=is_fair and not is_release and args[9] == b"1",
        status=int(answer[0]),
    )


def asked_for(script: str, args: list[bytes]) -> str | None:
    """The name of the lock or permits that a script of the lock's family asks for."""
    return args[0].decode() if script in _OF_THE_FAMILY else None


def counted_call(script: str, args: list[bytes]) -> tuple[str, bytes] | None:
    """The identity of a call that changes a count; ``None`` if the script changes no count."""
    return (script, args[2]) if script in _COUNTS else None


def _renewed(script: str, args: list[bytes], rows: list[Any]) -> list[tuple[bytes, bytes]]:
    """The keys of locks that a renewal prolonged, each with the acquisition for which it did."""
    if script != "lock/renew":
        return []
    count = (len(args) - _RENEW_ARGUMENTS) // (2 + _RENEWED_FIELDS)
    first = 2 * count + _RENEW_ARGUMENTS
    return [(args[2 * row], args[first + 3 * row]) for row in range(count) if rows[row][0] == GRANTED]


class FamilyCall(NamedTuple):
    """A call of a script of the family: read-write locks, permits, counting semaphores and latches."""

    script: str
    key: bytes
    status: int
    # The id of the acquisition; for a latch, of the request.
    acquisition: bytes = b""
    # The token in its reply, if there is one.
    token: int = 0
    # The number of permits, or the number with which a latch is closed or counted down.
    number: int = 1
    # Whether it is the last release of the acquisition.
    ends: bool = False
    # Whether a release gives back permits that are known to be taken.
    is_sure: bool = False

    @property
    def is_release(self) -> bool:
        return self.script.endswith(("/release", "/count_down"))

    @property
    def is_wait(self) -> bool:
        return self.script == "latch/wait"

    @property
    def is_by_hand(self) -> bool:
        """Whether an operator made the call."""
        return "force" in self.script or self.script in ("permit/resize", *_BY_HAND)


_BY_HAND = ("counting_semaphore/add", "counting_semaphore/set", "counting_semaphore/drain")
# The places of the acquisition and of the number of permits. A latch may be counted down to zero at once.
_PLACES = {
    "permit/acquire": (3, 6),
    "permit/release": (3, 7),
    "counting_semaphore/acquire": (2, 5),
    "counting_semaphore/release": (2, 7),
    "latch/set": (2, 6),
    "latch/count_down": (2, 6),
}
_ALL_THERE_IS = 1 << 40
# The number of keys of each hold in a renewal.
_KEYS_OF_RENEWALS = {"read_write/renew": 3, "permit/renew": 3}
_OWNERS_CALL = ("read_write/acquire", "read_write/release")


def _family_call(script: str, args: list[bytes], answer: list[Any]) -> FamilyCall | None:
    """The call of a script of the family; ``None`` for another, and for a renewal."""
    if not script.startswith(("read_write/", "permit/", "counting_semaphore/", "latch/")):
        return None
    if script in _KEYS_OF_RENEWALS or not answer:
        return None
    token = answer[1] if answer[0] == GRANTED and script.endswith("/acquire") else 0
    call = FamilyCall(script, args[0], answer[0], token=token)
    if script in _HAND_OVERS:
        token = answer[1] if answer[0] == GRANTED else 0
        return call._replace(acquisition=args[_HAND_OVERS[script][1]], token=token)
    if script in _OWNERS_CALL:
        return call._replace(acquisition=args[4], ends=call.is_release and args[6] == b"0")
    if script not in _PLACES:
        return call
    acquisition, number = (args[place] for place in _PLACES[script])
    return call._replace(
        acquisition=acquisition,
        number=int(number) if number else _ALL_THERE_IS,
        ends=script.endswith("/release"),
        is_sure=script == "counting_semaphore/release" and args[3] == b"1",
    )


def _renewals(script: str, args: list[bytes], rows: list[Any]) -> list[tuple[bytes, bytes, int]]:
    """Renewals of the family that are acknowledged: the key, the acquisition, and the milliseconds that are left."""
    keys = _KEYS_OF_RENEWALS.get(script, 0)
    if not keys:
        return []
    first = keys * len(rows) + _RENEW_ARGUMENTS
    return [
        (args[keys * place], args[first + _RENEWED_FIELDS * place], row[2])
        for place, row in enumerate(rows)
        if row[0] == GRANTED
    ]


class HandOver(NamedTuple):
    """A detach or an adoption that was granted: one acquisition takes the place of another."""

    key: bytes
    replaced: bytes
    acquisition: bytes


# By script, the place of the acquisition that is replaced, and the place of the new one.
_HAND_OVERS = {
    "lock/detach": (2, 3),
    "lock/adopt": (9, 3),
    "read_write/detach": (3, 4),
    "read_write/adopt": (7, 3),
    "permit/detach": (3, 4),
    "permit/adopt": (7, 3),
}


def _hand_over(script: str, args: list[bytes], answer: list[Any]) -> HandOver | None:
    """The hand-over by a script; ``None`` for another script, and for one that changed nothing."""
    if script not in _HAND_OVERS or not answer or answer[0] != GRANTED:
        return None
    replaced, acquisition = _HAND_OVERS[script]
    return HandOver(args[0], args[replaced], args[acquisition])


_reader = hiredis.Reader()


class Ran:
    """A script that a server has run: each check looks at its calls, which are taken apart once."""

    def __init__(self, script: str, args: list[bytes], reply: bytes) -> None:
        self.script, self.args = script, args
        _reader.feed(reply)
        decoded = _reader.gets()
        # Several calls as one command have a reply for each of them.
        each = decoded if isinstance(decoded, list) else [decoded]
        self.is_clean = script.removesuffix(_SEVERAL).endswith(("release_clean", _HAND_OFF))
        self.is_refused = bool(each) and all(isinstance(one, hiredis.ReplyError) for one in each)
        # A script that the server refused has done nothing.
        answers = decoded if isinstance(decoded, list) else None
        self.lock_calls = [] if answers is None else _lock_calls(script, args, answers)
        self.family_call = None if answers is None else _family_call(script, args, answers)
        self.hand_over = None if answers is None else _hand_over(script, args, answers)
        self.renewed = [] if answers is None else _renewed(script, args, answers)
        self.renewals = [] if answers is None else _renewals(script, args, answers)

    def prolonged(self) -> list[tuple[bytes, bytes]]:
        """The keys that the script granted or prolonged, each with the acquisition that has it."""
        found = [(call.key, call.acquisition) for call in self.lock_calls if call.status == GRANTED]
        if self.hand_over is not None:
            found.append((self.hand_over.key, self.hand_over.acquisition))
        call = self.family_call
        if call is not None and call.status == GRANTED:
            found.append((call.key, call.acquisition))
        found += [(key, acquisition) for key, acquisition, _ in self.renewals]
        return found + self.renewed
