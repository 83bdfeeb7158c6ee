"""Where a lock lives in Redis."""

from dataclasses import dataclass, replace
from functools import lru_cache

WRITER = ":write"  # What ends the field of an owner who writes.
QUORUM_KEY = "aiolock_quorum"  # Says since when a server of a quorum has forgotten nothing.
ONCE_KEY = "aiolock_once:"  # What the key of what runs once begins with.
# What aiolock keeps in Redis beside the locks.
OWN_KEYS = ("aiolock_token:", "aiolock_client:", ONCE_KEY, "aiolock_mark:", QUORUM_KEY)


@dataclass(frozen=True, slots=True)
class LockKeys:
    """The keys of a lock, or of a semaphore; Redisson uses the same ones, but for the tokens."""

    name: str
    lock: str
    tokens: str
    channel: str
    all: tuple[str, ...]
    """What every script that changes it is sent with: the lock and its tokens, and what else it has."""
    entry: str
    """What a client knows it by: names like ``a`` and ``{a}`` share a channel, and two primitives may share a name."""
    record: tuple[str, str] | None = None
    """What stands before and behind the owner in the key that each of its owners has for itself."""
    other: str = ""
    """The other half of a read-write lock, as a client knows it."""

    def channel_of(self, client: str) -> str:
        """Where *client* alone is told that it is next, if the server keeps a line."""
        return f"{self.channel}:{client}"

    @classmethod
    @lru_cache(1024)
    def of(cls, name: str, prefix: str) -> "LockKeys":
        """
        Keys for *name*, in one hash slot, braced by Redisson's rule: no braces when there is a ``{`` already.

        `ValueError` if the lock would be one of aiolock's own keys.
        """
        lock, tag, tokens = _tagged(name, prefix)
        return cls(name, lock, tokens, f"redisson_lock__channel:{tag}", (lock, tokens), f"lock {lock}")

    @classmethod
    @lru_cache(1024)
    def of_fair(cls, name: str, prefix: str) -> "LockKeys":
        """Those of the fair lock *name*, which excludes the lock of that name; as `of`."""
        plain = cls.of(name, prefix)
        return replace(plain, entry=f"fair {plain.lock}")

    @classmethod
    @lru_cache(1024)
    def of_permits(cls, name: str, prefix: str) -> "LockKeys":
        """Those of the semaphore *name* whose permits expire; as `of`."""
        count, tag, tokens = _tagged(name, prefix)
        every = (count, f"{tag}:timeout", tokens)
        return cls(name, count, tokens, f"redisson_sc:{tag}", every, f"permits {count}")

    @classmethod
    @lru_cache(1024)
    def of_semaphore(cls, name: str, prefix: str) -> "LockKeys":
        """Those of the semaphore *name* whose permits never expire; as `of`."""
        count, tag, tokens = _tagged(name, prefix)
        return cls(name, count, tokens, f"redisson_sc:{tag}", (count, tokens), f"semaphore {count}")

    @classmethod
    @lru_cache(1024)
    def of_latch(cls, name: str, prefix: str) -> "LockKeys":
        """
        Those of the count-down latch *name*; as `of`.

        The channel of a name with braces is another than Redisson's, which would not be in the slot of the latch.
        """
        count, tag, tokens = _tagged(name, prefix)
        return cls(name, count, tokens, f"redisson_countdownlatch__channel__{tag}", (count, tokens), f"latch {count}")

    @classmethod
    @lru_cache(1024)
    def of_once(cls, name: str, prefix: str) -> "LockKeys":
        """Those of the body that runs once per *name*, which a lock may have, too; as `of`."""
        _, tag, tokens = _tagged(name, prefix)
        once = f"{ONCE_KEY}{tag}"
        return cls(name, once, tokens, f"redisson_lock__channel:{once}", (once, tokens), f"once {once}")

    @classmethod
    @lru_cache(1024)
    def of_read_write(cls, name: str, prefix: str) -> "tuple[LockKeys, LockKeys]":
        """Those of the read-write lock *name*, for reading and for writing; as `of`."""
        lock, tag, tokens = _tagged(name, prefix)
        read, write = f"read {lock}", f"write {lock}"

        def half(entry: str, other: str, suffix: str) -> LockKeys:
            record = (f"{tag}:", f"{suffix}:rwlock_timeout:1")
            return cls(name, lock, tokens, f"redisson_rwlock:{tag}", (lock, tokens), entry, record, other)

        return half(read, write, ""), half(write, read, WRITER)


def _tagged(name: str, prefix: str) -> tuple[str, str, str]:
    """The key that is *name*'s own, what all of its keys have in braces, and the key of its tokens."""
    key = prefix + name
    if key.startswith(OWN_KEYS):
        raise ValueError(f"name {name!r} would make the key {key!r}, and keys that begin so are aiolock's own")
    tag = key if "{" in key else f"{{{key}}}"
    return key, tag, f"aiolock_token:{tag}"


def stays_together(key: str) -> bool:
    """
    Whether all keys of the lock *key* are in one slot of a cluster.

    A slot is that of what stands between the first brace and the next that closes, if that is anything, else of the
    whole key. By Redisson's rule that is the same for all of them only if it is in *key*, or *key* has no braces.
    """
    _, opens, rest = key.partition("{")
    inner, closes, _ = rest.partition("}")
    return bool(closes and inner) if opens else "}" not in key


def card_key(client: str) -> str:
    """The key of the card of *client*."""
    return f"aiolock_client:{client}"


def mark_key(keys: LockKeys) -> str:
    """The key of the mark that whoever holds what has these *keys* may leave."""
    if keys.lock.startswith(ONCE_KEY):  # A lock may have the same name.
        return f"aiolock_mark:{keys.lock}"
    return f"aiolock_mark:{keys.tokens.removeprefix('aiolock_token:')}"
