"""The scripts that free one grant, each after the files that it shares with the scripts of its primitive."""

from collections.abc import Callable
from functools import cache
from importlib import resources

from aiolock._cli.locks.model import FAIR, LOCK, READ_WRITE, SEMAPHORE, Hold, Lock
from aiolock._config import ENDED_MEMORY, LockConfig, Timing
from aiolock._keys import OWN_LOCKS, LockKeys, own_kind
from aiolock._scripts import FORCE_RELEASE, PERMIT, READ, Script
from aiolock._types import milliseconds

# All files of a script of the primitive but the last, which is the script's own.
_SHARED = {"lock": FORCE_RELEASE.files[:-1], "read_write": READ.renew.files[:-1], "permits": PERMIT.renew.files[:-1]}
# Of each kind that has owners: the file, and how to make the keys.
_HOW: dict[str, tuple[str, Callable[[str, str], LockKeys]]] = {
    LOCK: ("lock", LockKeys.of),
    FAIR: ("lock", LockKeys.of),
    READ_WRITE: ("read_write", lambda name, prefix: LockKeys.of_read_write(name, prefix)[0]),
    SEMAPHORE: ("permits", LockKeys.of_permits),
    **{own_kind(beginning): ("lock", make) for beginning, make in OWN_LOCKS.items()},
}
_RETENTION = milliseconds(Timing.of(LockConfig()).token_retention)

Sent = tuple[str, tuple[str, ...], list[str | bytes | int]]


@cache
def _source(name: str) -> str:
    own = resources.files(__package__).joinpath(f"{name}.lua").read_text("utf-8")
    return Script(name, _SHARED[name]).source + own


def breaking(lock: Lock, hold: Hold, request: str, publish: str) -> Sent:
    """The script that frees *lock* from *hold*, with its keys and its arguments; *request* is unique."""
    file, make = _HOW[lock.kind]
    memory, source, keys = milliseconds(ENDED_MEMORY), _source(file), make(lock.name, "")
    if lock.kind == SEMAPHORE:
        return source, keys.all, [request, _RETENTION, memory, keys.channel, publish, *hold.permits]
    token = "" if hold.token is None else hold.token
    return source, keys.all, [request, hold.owner_id, token, _RETENTION, memory, keys.channel, publish]


def can_break(lock: Lock) -> bool:
    """Whether this kind of lock has owners."""
    return lock.kind in _HOW
