"""The holds in a server's data: this module knows the layout of read-write locks and permits."""

from typing import NamedTuple

from tests.simulation.redis_data import Data, SortedSet

_RECORD = b"{%s}:%s:rwlock_timeout:1"
# The end of the key of the acquired permits, after the name in braces.
_PERMITS = b"}:timeout"


class Hold(NamedTuple):
    acquisition: bytes
    # Milliseconds by the server's clock.
    until: int
    # 0: the data do not say it.
    token: int = 0
    step: int = 0
    renewal: int = 0

    def is_earlier_than(self, other: "Hold") -> bool:
        """Whether this is an earlier state of the same hold than the *other*."""
        return self.until < other.until or self.step < other.step or self.renewal < other.renewal


def readers_and_writers(data: Data, lock: bytes) -> dict[bytes, Hold]:
    """
    The holds of a read-write lock by field. A hold that has expired is among them until its record is removed: it comes
    back to life if the server's clock steps back before that.
    """
    found = {}
    for field in data.values.get(lock) or ():
        record = _RECORD % (lock, field)
        value = data.values.get(record)
        if type(value) is dict and record in data.expires:
            numbers = (int(value[each]) for each in (b"token", b"step", b"renewal"))
            found[field] = Hold(value[b"acquisition"], data.expires[record], *numbers)
    return found


def permits_of(data: Data, name: bytes) -> dict[bytes, Hold]:
    """The acquired permits, including expired ones."""
    value = data.values.get(b"{%s%s" % (name, _PERMITS))
    members = value if type(value) is SortedSet else {}
    return {member: Hold(member.rpartition(b"#")[0], int(score)) for member, score in members.items()}


def acquisitions_of(data: Data, key: bytes) -> dict[bytes, bytes]:
    """The fields or permits of *key* that name a holder, each with its acquisition, if there is one."""
    value = data.values.get(key)
    if type(value) is SortedSet and key.endswith(_PERMITS):
        permits = permits_of(data, key.removeprefix(b"{").removesuffix(_PERMITS))
        return {permit: hold.acquisition for permit, hold in permits.items() if hold.until > data.clock()}
    if type(value) is not dict:
        return {}
    holds = {field: hold for field, hold in readers_and_writers(data, key).items() if hold.until > data.clock()}
    acquisition = value.get(b"aiolock:acquisition", b"")
    owners = [field for field in value if not field.endswith(b":kept")]
    return {owner: holds[owner].acquisition if owner in holds else acquisition for owner in owners}


def left_behind(data: Data, key: bytes) -> tuple[dict[bytes, bytes], int] | None:
    """The remains of a release in the lock's place, which nobody holds, and the time until which they stay."""
    value = data.values.get(key)
    if type(value) is not dict or key not in data.expires or data.expires[key] <= data.clock():
        return None
    is_left = b"aiolock:outcome" in value or any(field.endswith(b":kept") for field in value)
    return (dict(value), data.expires[key]) if is_left else None
