"""
The keys of the primitives in Redis.

A primitive that Redisson has, too, has Redisson's keys. By Redisson's rule the names ``x`` and ``{x}`` share the
channel of a lock, which does no harm. They would also share the further keys of a semaphore or a read-write lock, so
these primitives refuse ``{x}``. The keys that only aiolock has differ between any two names. A name whose key could
belong to another name is refused.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from aiolock._types import LONGEST_TEXT, quoted

# The end of a writer's field.
WRITER = ":write"
# The key with the time since which a server of a quorum has lost no data.
QUORUM_KEY = "aiolock_quorum"
# The beginning of the key of the tokens.
TOKENS_KEY = "aiolock_token:"
# The beginning of the key of a body that runs once.
ONCE_KEY = "aiolock_once:"
_ONCE_TOKENS_KEY = "aiolock_once_token:"
_ONCE_OLD_KEY = "aiolock_once_old:"
_MARK_KEY = "aiolock_mark:"
# The beginnings of aiolock's own keys.
OWN_KEYS = (TOKENS_KEY, ONCE_KEY, _ONCE_TOKENS_KEY, _ONCE_OLD_KEY, _MARK_KEY, QUORUM_KEY)
# The beginnings of keys that only Redisson uses: for its fair and fenced locks, and for releases that it sends again.
_REDISSONS_KEYS = ("redisson_lock_queue:", "redisson_lock_timeout:", "redisson_lock_token:", "redisson_unlock_latch:")
# The ends of the further keys of a semaphore and a read-write lock; Redisson puts a name without braces into braces.
_REDISSONS_ENDS = re.compile(r"\{.*(:timeout|:rwlock_timeout:\d+)\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class LockKeys:
    """The keys of any primitive; where Redisson has it, too, Redisson uses the same ones, except for the tokens."""

    name: str
    lock: str
    """Its first key, whatever it has there: a lock, a count, a latch."""
    tokens: str
    """The key of its tokens and of the ends that it remembers; empty if it has none."""
    channel: str
    """The channel of its messages. Each wait subscribes to it, so a primitive without messages has one, too."""
    all: tuple[str, ...]
    """The keys of every script that changes it: `lock`, its `tokens` if it has any, and its further keys."""
    entry: str
    """
    The name of its entry in a client.

    The channel would not do, which ``a`` and ``{a}`` share; nor would the name, which two primitives may share.
    """
    record: tuple[str, str] | None = None
    """If each owner has a key of its own: the text before and after the owner in the name of that key."""
    other: str = ""
    """The entry of what excludes it: the other half of a read-write lock, or the fair and the plain lock of a name."""

    def of_owner(self, owner: str) -> tuple[str, ...]:
        """The keys of every script that changes the hold of *owner*: `all`, and the owner's own key, if it has one."""
        record = self.record
        return self.all if record is None else (*self.all, f"{record[0]}{owner}{record[1]}")

    def channel_of(self, unique: str) -> str:
        """The channel on which the server tells the client with this *unique* part that it is the next in line."""
        return f"{self.channel}:{unique}"

    @classmethod
    @lru_cache(1024)
    def of(cls, name: str, prefix: str) -> "LockKeys":
        """
        The keys for *name*, in one hash slot, with braces by Redisson's rule: none are added when there is a ``{``.

        `ValueError` if the key is too long, or could be one that belongs to another name.
        """
        lock, tag, tokens = _tagged(name, prefix)
        channel = f"redisson_lock__channel:{tag}"
        return cls(name, lock, tokens, channel, (lock, tokens), f"lock {lock}", other=f"fair {lock}")

    @classmethod
    @lru_cache(1024)
    def of_fair(cls, name: str, prefix: str) -> "LockKeys":
        """The keys of the fair lock *name*, which excludes the lock of that name; as in `of`."""
        plain = cls.of(name, prefix)
        return replace(plain, entry=plain.other, other=plain.entry)

    @classmethod
    @lru_cache(1024)
    def of_permits(cls, name: str, prefix: str) -> "LockKeys":
        """The keys of the semaphore *name*; as in `of`."""
        count, tag, tokens = _tagged(name, prefix)
        every = (count, f"{tag}:timeout", tokens)
        return cls(name, count, tokens, f"redisson_sc:{tag}", every, f"semaphore {count}")

    @classmethod
    @lru_cache(1024)
    def of_counting_semaphore(cls, name: str, prefix: str) -> "LockKeys":
        """The keys of the counting semaphore *name*; as in `of`."""
        count, tag, tokens = _tagged(name, prefix)
        return cls(name, count, tokens, f"redisson_sc:{tag}", (count, tokens), f"counting semaphore {count}")

    @classmethod
    @lru_cache(1024)
    def of_latch(cls, name: str, prefix: str) -> "LockKeys":
        """
        The keys of the count-down latch *name*; as in `of`.

        The channel of a name with braces differs from Redisson's, which would not be in the slot of the latch.
        """
        count, tag, tokens = _tagged(name, prefix)
        return cls(name, count, tokens, f"redisson_countdownlatch__channel__{tag}", (count, tokens), f"latch {count}")

    @classmethod
    @lru_cache(1024)
    def of_once(cls, name: str, prefix: str) -> "LockKeys":
        """The keys of the body that runs once per *name*; a lock of that name has other keys. As in `of`."""
        key, *_ = _tagged(name, prefix)
        once, tokens = f"{ONCE_KEY}{_own(key)}", f"{_ONCE_TOKENS_KEY}{_own(key)}"
        return cls(name, once, tokens, f"redisson_lock__channel:{once}", (once, tokens), f"once {once}")

    @classmethod
    @lru_cache(1024)
    def of_read_write(cls, name: str, prefix: str) -> "tuple[LockKeys, LockKeys]":
        """The keys of the read-write lock *name*, for reading and for writing; as in `of`."""
        lock, tag, tokens = _tagged(name, prefix)
        read, write = f"read {lock}", f"write {lock}"

        def half(entry: str, other: str, suffix: str) -> LockKeys:
            record = (f"{tag}:", f"{suffix}:rwlock_timeout:1")
            return cls(name, lock, tokens, f"redisson_rwlock:{tag}", (lock, tokens), entry, record, other)

        return half(read, write, ""), half(write, read, WRITER)


# The primitives that are like a lock, and whose keys have a beginning of their own: how to make the keys. Programs that
# look at all keys, as `aiolock ls` does, know these primitives from here.
OWN_LOCKS: dict[str, Callable[[str, str], LockKeys]] = {ONCE_KEY: LockKeys.of_once}


def own_kind(beginning: str) -> str:
    """The kind, for people, of the primitive whose keys have that *beginning* of their own."""
    return beginning.removeprefix("aiolock_").removesuffix(":").replace("_", " ")


def _tagged(name: str, prefix: str) -> tuple[str, str, str]:
    """The key of *name* itself, the part in braces of all its keys in Redisson, and the key of its tokens."""
    key = prefix + name
    if (length := len(key.encode())) > LONGEST_TEXT:
        raise ValueError(
            f"name {quoted(name)} makes a key of {length} bytes, the prefix included, and {LONGEST_TEXT} are the most: "
            "use a digest of it"
        )
    if key.startswith(OWN_KEYS):
        raise ValueError(
            f"name {quoted(name)} would make the key {quoted(key)}: keys with that beginning are aiolock's own"
        )
    if key.startswith(_REDISSONS_KEYS) or _REDISSONS_ENDS.search(key):
        raise ValueError(f"name {quoted(name)} would make the key {quoted(key)}, which Redisson uses for another name")
    tag = key if "{" in key else f"{{{key}}}"
    return key, tag, f"{TOKENS_KEY}{_own(key)}"


def _own(key: str) -> str:
    """
    The part of aiolock's own keys that stands for the lock *key*; it is in the same slot of a cluster.

    It is ``{x}`` for ``x``, and ``:{x}`` for ``{x}``: no two are the same.
    """
    return f":{key}" if "{" in key else f"{{{key}}}"


def key_of(own: str) -> str | None:
    """The key of the lock whose other keys, which only aiolock has, contain the part *own*; ``None`` if none does."""
    if own[:1] == ":" and "{" in own:
        return own[1:]
    return own[1:-1] if is_braced(own) else None


def is_braced(key: str) -> bool:
    """Whether *key* is a key without ``{``, put in braces: in Redisson both have the same further keys."""
    inner = key[1:-1]
    return inner != "" and key == f"{{{inner}}}" and "{" not in inner


def stays_together(key: str) -> bool:
    """
    Whether all keys of the lock *key* are in one slot of a cluster.

    The slot depends on the text between the first brace and the next closing one, if there is any, else on the whole
    key. By Redisson's rule it is the same for all keys only if that text is within *key*, or *key* has no braces.
    """
    _, opens, rest = key.partition("{")
    inner, closes, _ = rest.partition("}")
    return bool(closes and inner) if opens else "}" not in key


def old_key(keys: LockKeys) -> str:
    """The key of the result of the last run, for the body that runs once with these *keys*."""
    return f"{_ONCE_OLD_KEY}{keys.lock.removeprefix(ONCE_KEY)}"


def mark_key(keys: LockKeys) -> str:
    """The key of the mark that a holder of the lock with these *keys* may leave."""
    # A lock may have the same name as a `once`.
    if keys.lock.startswith(ONCE_KEY):
        return f"{_MARK_KEY}{keys.lock}"
    return f"{_MARK_KEY}{_own(keys.lock)}"
