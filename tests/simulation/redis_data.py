"""
The keys of a server, and the commands that scripts call. A command that is not here fails loudly.

`python -m tests.simulation.compare` runs random calls of every script on this model and on a real server.
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any

WRONG_TYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"
_NO_INTEGER = "ERR value is not an integer or out of range"


class SortedSet(dict[bytes, float]):
    """Members with their scores."""

    def ordered(self) -> list[tuple[float, bytes]]:
        return sorted((score, member) for member, score in self.items())


_TYPES: dict[type, bytes] = {bytes: b"string", dict: b"hash", SortedSet: b"zset"}

Snapshot = tuple[dict[bytes, Any], dict[bytes, int]]


class RefusedError(Exception):
    """The server answers with this error."""


class Status(bytes):
    """A reply such as OK."""


def score_text(score: float) -> bytes:
    return b"%d" % score if score == int(score) and abs(score) < 1e17 else b"%.17g" % score


def _bound(text: bytes) -> tuple[float, bool]:
    """The score that *text* names, and whether the range leaves that score out."""
    return (float(text[1:]), True) if text[:1] == b"(" else (float(text), False)


def _integer(text: bytes) -> int:
    try:
        return int(text)
    except ValueError:
        raise RefusedError(_NO_INTEGER) from None


def _slice(ordered: list[Any], first: int, last: int) -> list[Any]:
    size = len(ordered)
    first, last = (max(0, place + size) if place < 0 else place for place in (first, last))
    return ordered[first : last + 1]


class Data:
    """Keys and their values. *clock* tells milliseconds, by the server's own clock."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self.clock = clock
        self.values: dict[bytes, Any] = {}
        self.expires: dict[bytes, int] = {}
        # The keys that the running script wrote to, and those that had expired before.
        self.touched: dict[bytes, None] = {}

    def snapshot(self) -> Snapshot:
        return {key: copy.copy(value) for key, value in self.values.items()}, dict(self.expires)

    def restore(self, snapshot: Snapshot) -> None:
        values, expires = snapshot
        self.values, self.expires = {key: copy.copy(value) for key, value in values.items()}, dict(expires)

    def take(self, key: bytes, other: "Data") -> None:
        """Move *key* here from *other*, with the time that it has left."""
        self.values[key] = other.values[key]
        if key in other.expires:
            self.expires[key] = self.clock() + other.left(key)
        other.drop(key)

    def find(self, key: bytes, kind: type | None = None) -> Any:
        """The value of *key*, or ``None``; refused if it is of another *kind*."""
        value = self.values.get(key)
        if value is None:
            return None
        expires = self.expires.get(key)
        if expires is not None and expires <= self.clock():
            self.drop(key)
            return None
        if kind is not None and type(value) is not kind:
            raise RefusedError(WRONG_TYPE)
        return value

    def drop(self, key: bytes) -> bool:
        self.touched[key] = None
        self.expires.pop(key, None)
        return self.values.pop(key, None) is not None

    def left(self, key: bytes) -> int:
        """The milliseconds that *key* has left; -1: it does not expire; -2: it does not exist."""
        if self.find(key) is None:
            return -2
        return self.expires[key] - self.clock() if key in self.expires else -1

    def _to_write(self, key: bytes, kind: type) -> Any:
        """The value of *key*, created if it does not exist."""
        value = self.find(key, kind)
        self.touched[key] = None
        if value is None:
            value = self.values[key] = kind()
        return value

    def _drop_if_empty(self, key: bytes, value: Any) -> None:
        if not value:
            self.drop(key)

    def run(self, name: bytes, args: Sequence[bytes]) -> Any:
        return COMMANDS[name](self, *args)

    # Keys of any kind.

    def do_exists(self, *keys: bytes) -> int:
        return sum(self.find(key) is not None for key in keys)

    def do_del(self, *keys: bytes) -> int:
        return sum(self.drop(key) for key in keys if self.find(key) is not None)

    do_unlink = do_del

    def do_type(self, key: bytes) -> Status:
        value = self.find(key)
        return Status(b"none" if value is None else _TYPES[type(value)])

    def do_pttl(self, key: bytes) -> int:
        return self.left(key)

    def do_pexpire(self, key: bytes, milliseconds: bytes, *options: bytes) -> int:
        if self.find(key) is None:
            return 0
        when = self.clock() + _integer(milliseconds)
        if options and not self._may_expire(key, when, options[0].upper()):
            return 0
        self.touched[key] = None
        if when <= self.clock():
            self.drop(key)
        else:
            self.expires[key] = when
        return 1

    def _may_expire(self, key: bytes, when: int, option: bytes) -> bool:
        now = self.expires.get(key)
        return {
            b"NX": now is None,
            b"XX": now is not None,
            b"GT": now is not None and when > now,
            b"LT": now is None or when < now,
        }[option]

    def do_pexpiretime(self, key: bytes) -> int:
        if self.find(key) is None:
            return -2
        return self.expires.get(key, -1)

    def do_persist(self, key: bytes) -> int:
        if self.find(key) is None:
            return 0
        self.touched[key] = None
        return int(self.expires.pop(key, None) is not None)

    # Strings.

    def do_get(self, key: bytes) -> bytes | None:
        return self.find(key, bytes)  # type: ignore[no-any-return]

    def do_set(self, key: bytes, value: bytes, *options: bytes) -> Status | None:
        words = [option.upper() for option in options]
        found = self.find(key)
        if (b"NX" in words and found is not None) or (b"XX" in words and found is None):
            return None
        self.touched[key] = None
        if b"PX" in words:
            self.expires[key] = self.clock() + int(words[words.index(b"PX") + 1])
        elif b"KEEPTTL" not in words:
            self.expires.pop(key, None)
        self.values[key] = value
        return Status(b"OK")

    def do_incrby(self, key: bytes, by: bytes) -> int:
        value = _integer(self.find(key, bytes) or b"0") + _integer(by)
        self.touched[key] = None
        self.values[key] = b"%d" % value
        return value

    def do_incr(self, key: bytes) -> int:
        return self.do_incrby(key, b"1")

    def do_decrby(self, key: bytes, by: bytes) -> int:
        return self.do_incrby(key, b"%d" % -_integer(by))

    # Hashes.

    def do_hset(self, key: bytes, *pairs: bytes) -> int:
        value = self._to_write(key, dict)
        new = sum(field not in value for field in dict.fromkeys(pairs[::2]))
        value.update(zip(pairs[::2], pairs[1::2], strict=True))
        return new

    def do_hget(self, key: bytes, field: bytes) -> bytes | None:
        return (self.find(key, dict) or {}).get(field)

    def do_hmget(self, key: bytes, *fields: bytes) -> list[bytes | None]:
        value = self.find(key, dict) or {}
        return [value.get(field) for field in fields]

    def do_hgetall(self, key: bytes) -> list[bytes]:
        return [each for pair in (self.find(key, dict) or {}).items() for each in pair]

    def do_hkeys(self, key: bytes) -> list[bytes]:
        return list(self.find(key, dict) or {})

    def do_hvals(self, key: bytes) -> list[bytes]:
        return list((self.find(key, dict) or {}).values())

    def do_hlen(self, key: bytes) -> int:
        return len(self.find(key, dict) or {})

    def do_hexists(self, key: bytes, field: bytes) -> int:
        return int(field in (self.find(key, dict) or {}))

    def do_hincrby(self, key: bytes, field: bytes, by: bytes) -> int:
        value = self._to_write(key, dict)
        count = int(value.get(field, b"0")) + _integer(by)
        value[field] = b"%d" % count
        return count

    def do_hdel(self, key: bytes, *fields: bytes) -> int:
        value = self.find(key, dict)
        if value is None:
            return 0
        gone = sum(value.pop(field, None) is not None for field in fields)
        self.touched[key] = None
        self._drop_if_empty(key, value)
        return gone

    # Sorted sets.

    def do_zadd(self, key: bytes, *args: bytes) -> int:
        options, pairs = _zadd_options(args)
        if self.find(key, SortedSet) is None and b"XX" in options:
            return 0
        value = self._to_write(key, SortedSet)
        new = changed = 0
        for score, member in zip(map(float, pairs[::2]), pairs[1::2], strict=True):
            before = value.get(member)
            if before is None:
                if b"XX" not in options:
                    value[member] = score
                    new += 1
            elif not (
                {b"NX"} & options or (b"GT" in options and score <= before) or (b"LT" in options and score >= before)
            ):
                value[member] = score
                changed += score != before
        self._drop_if_empty(key, value)
        return new + changed if b"CH" in options else new

    def do_zrem(self, key: bytes, *members: bytes) -> int:
        value = self.find(key, SortedSet)
        if value is None:
            return 0
        self.touched[key] = None
        gone = sum(value.pop(member, None) is not None for member in members)
        self._drop_if_empty(key, value)
        return gone

    def do_zscore(self, key: bytes, member: bytes) -> bytes | None:
        score = (self.find(key, SortedSet) or {}).get(member)
        return None if score is None else score_text(score)

    def do_zmscore(self, key: bytes, *members: bytes) -> list[bytes | None]:
        return [self.do_zscore(key, member) for member in members]

    def do_zcard(self, key: bytes) -> int:
        return len(self.find(key, SortedSet) or ())

    def do_zrank(self, key: bytes, member: bytes) -> int | None:
        ordered = [each for _, each in (self.find(key, SortedSet) or SortedSet()).ordered()]
        return ordered.index(member) if member in ordered else None

    def _between(self, key: bytes, low: bytes, high: bytes) -> list[tuple[float, bytes]]:
        value = self.find(key, SortedSet)
        if not value:
            return []
        (least, without_least), (most, without_most) = _bound(low), _bound(high)
        return sorted(
            (score, member)
            for member, score in value.items()
            if least <= score <= most
            and not (score == least and without_least)
            and not (score == most and without_most)
        )

    def do_zcount(self, key: bytes, low: bytes, high: bytes) -> int:
        return len(self._between(key, low, high))

    def do_zrangebyscore(self, key: bytes, low: bytes, high: bytes, *options: bytes) -> list[bytes]:
        return _listed(self._between(key, low, high), options)

    def do_zrevrangebyscore(self, key: bytes, high: bytes, low: bytes, *options: bytes) -> list[bytes]:
        return _listed(self._between(key, low, high)[::-1], options)

    def do_zremrangebyscore(self, key: bytes, low: bytes, high: bytes) -> int:
        found = self._between(key, low, high)
        return self.do_zrem(key, *(member for _, member in found)) if found else 0

    def do_zrange(self, key: bytes, low: bytes, high: bytes, *options: bytes) -> list[bytes]:
        words = [option.upper() for option in options]
        if b"BYSCORE" in words:
            if b"REV" in words:
                low, high = high, low
            found = self._between(key, low, high)
            return _listed(found[::-1] if b"REV" in words else found, options)
        value = self.find(key, SortedSet)
        ordered = value.ordered() if value else []
        return _listed(_slice(ordered[::-1] if b"REV" in words else ordered, int(low), int(high)), options)

    def do_zpopmin(self, key: bytes) -> list[bytes]:
        value = self.find(key, SortedSet)
        if value is None:
            return []
        score, member = value.ordered()[0]
        self.do_zrem(key, member)
        return [member, score_text(score)]


def _zadd_options(args: tuple[bytes, ...]) -> tuple[set[bytes], tuple[bytes, ...]]:
    options = set()
    while args[0].upper() in (b"NX", b"XX", b"GT", b"LT", b"CH"):
        options.add(args[0].upper())
        args = args[1:]
    return options, args


def _listed(found: list[tuple[float, bytes]], options: tuple[bytes, ...]) -> list[bytes]:
    words = [option.upper() for option in options]
    if b"LIMIT" in words:
        place = words.index(b"LIMIT")
        first, count = int(words[place + 1]), int(words[place + 2])
        found = found[first:] if count < 0 else found[first : first + count]
    if b"WITHSCORES" in words:
        return [each for score, member in found for each in (member, score_text(score))]
    return [member for _, member in found]


COMMANDS: dict[bytes, Callable[..., Any]] = {
    name.removeprefix("do_").upper().encode(): command for name, command in vars(Data).items() if name.startswith("do_")
}
