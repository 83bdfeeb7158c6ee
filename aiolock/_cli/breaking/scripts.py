"""The scripts that free one grant, each after the files that it shares with the scripts of its primitive."""

from functools import cache
from importlib import resources

from aiolock._cli.locks.model import FAIR, LOCK, ONCE, READ_WRITE, SEMAPHORE, Hold, Lock
from aiolock._config import ENDED_MEMORY, LockConfig, Timing
from aiolock._keys import LockKeys
from aiolock._scripts import FORCE_RELEASE, PERMIT, READ, Script
from aiolock._types import milliseconds

# All files of a script of the primitive but the last, which is the script's own.
_SHARED = {"lock": FORCE_RELEASE.files[:-1], "read_write": READ.renew.files[:-1], "permits": PERMIT.renew.files[:-1]}
_FILES = {LOCK: "lock", FAIR: "lock", ONCE: "lock", READ_WRITE: "read_write", SEMAPHORE: "permits"}
_RETENTION = milliseconds(Timing.of(LockConfig()).token_retention)

Sent = tuple[str, tuple[str, ...], list[str | bytes | int]]


@cache
def _source(name: str) -> str:
    own = resources.files(__package__).joinpath(f"{name}.lua").read_text("utf-8")
    return Script(name, _SHARED[name]).source + own


def breaking(lock: Lock, hold: Hold, request: str, publish: str) -> Sent:
    """The script that frees *lock* from *hold*, with its keys and its arguments; *request* is unique."""
    memory, source = milliseconds(ENDED_MEMORY), _source(_FILES[lock.kind])
    if lock.kind == SEMAPHORE:
        keys = LockKeys.of_permits(lock.name, "")
        return source, keys.all, [request, _RETENTION, memory, keys.channel, publish, *hold.permits]
    keys = _keys(lock)
    token = "" if hold.token is None else hold.token
    return source, keys.all, [request, hold.owner_id, token, _RETENTION, memory, keys.channel, publish]


def _keys(lock: Lock) -> LockKeys:
    if lock.kind == READ_WRITE:
        return LockKeys.of_read_write(lock.name, "")[0]
    return LockKeys.of_once(lock.name, "") if lock.kind == ONCE else LockKeys.of(lock.name, "")


def can_break(lock: Lock) -> bool:
    """Whether this kind of lock has owners."""
    return lock.kind in _FILES
