"""The peers, each behind one small adapter; an adapter is imported only when it is used."""

from importlib import import_module, metadata

from benchmarks.commands import SECTIONS
from benchmarks.peers.adapter import Peer

# Peer: the module of its adapter, and the distribution whose version is reported.
ADAPTERS: dict[str, tuple[str, str]] = {
    "aiolock": ("ours:Ours", "aiolock-redis"),
    "behind": ("ours:OursBehind", "aiolock-redis"),
    "block": ("ours:Ours", "aiolock-redis"),
    "block-behind": ("ours:OursBehind", "aiolock-redis"),
    "telemetry": ("ours:OursWithTelemetry", "aiolock-redis"),
    "one-by-one": ("ours:OursOneByOne", "aiolock-redis"),
    "as-lock": ("ours:OursAsLock", "aiolock-redis"),
    "fair": ("ours:OursFair", "aiolock-redis"),
    "counted": ("ours:OursCounted", "aiolock-redis"),
    "read": ("ours:OursRead", "aiolock-redis"),
    "write": ("ours:OursWrite", "aiolock-redis"),
    "permit": ("ours:OursPermit", "aiolock-redis"),
    "latch": ("ours:OursLatch", "aiolock-redis"),
    "bare": ("bare:Bare", "redis"),
    "batcher": ("batcher:Batcher", "redis"),
    "chain": ("chain:Chain", "redis"),
    "redis-py": ("redis_py:RedisPy", "redis"),
    "redis-py-default-pool": ("redis_py:RedisPyDefaultPool", "redis"),
    "coredis": ("coredis_lock:Coredis", "coredis"),
    "pottery": ("pottery_lock:Pottery", "pottery"),
    "py-redis-semaphore": ("py_redis_semaphore:PyRedisSemaphore", "py-redis-semaphore"),
    "redis-lock-py": ("redis_lock_py:RedisLockPy", "redis-lock-py"),
    "redis-fifo-lock": ("redis_fifo_lock_hold:RedisFifoLock", "redis-fifo-lock"),
    "grelmicro": ("grelmicro_lock:Grelmicro", "grelmicro"),
    "valkey-glide": ("valkey_glide:ValkeyGlide", "valkey-glide"),
    "quorum": ("quorum:Ours", "aiolock-redis"),
    "pottery-quorum": ("quorum:Pottery", "pottery"),
    "asyncio-lock": ("asyncio_lock:AsyncioLock", ""),
}
# What the libraries do: for a waiter, for a lock that is held for long, and against a holder that was late.
_POLLS = "poll every 0.1 s"
LIBRARIES: dict[str, tuple[str, str, str]] = {
    "redis-py": (_POLLS, "no", "no"),
    "coredis": (_POLLS, "no", "no"),
    "pottery": ("poll after a random time below 0.2 s", "by hand", "no"),
    "py-redis-semaphore": ("keep a connection each, woken by BLPOP", "yes", "yes"),
    "redis-lock-py": ("keep a connection each, woken by a message", "no", "no"),
    "redis-fifo-lock": ("keep a connection each, woken by BLPOP, in order of arrival", "yes", "yes"),
    "grelmicro": (_POLLS, "no", "no"),
    "valkey-glide": ("poll every 0.1 s; it has no lock: this one is written by hand", "no", "no"),
    "redisson": ("share a connection, woken by a message", "yes", "only in `RFencedLock`"),
}
# Measured by functions of the workloads, because they have no lock to enter: the pipeline, the Java program.
WITHOUT_ADAPTER = ("pipelined", "redisson", "redisson-async", "no-lock", *SECTIONS)
OLDER = "older-"
"""The prefix of a peer that is run with an earlier aiolock, in a process that finds it first."""
NAMES = (*ADAPTERS, *WITHOUT_ADAPTER, *(f"{OLDER}{name}" for name in (*ADAPTERS, "lock-commands")))


def adapter(name: str) -> type[Peer]:
    """The adapter of peer *name*; ImportError if it is not installed."""
    module, _, attribute = ADAPTERS[name.removeprefix(OLDER)][0].partition(":")
    found: type[Peer] = getattr(import_module(f"benchmarks.peers.{module}"), attribute)
    return found


def make(name: str, url: str, tasks: int, lease: float) -> Peer:
    """The adapter of peer *name*, not yet connected; ImportError if it is not installed."""
    return adapter(name)(url, tasks, lease)


def called_by_scripts(name: str) -> frozenset[str]:
    """Commands that the server counts for peer *name* and that its client never sends."""
    return adapter(name).called_by_scripts if name.removeprefix(OLDER) in ADAPTERS else frozenset()


def versions() -> dict[str, str]:
    """The version of every distribution that is installed, by peer."""
    found = {}
    for name, (_, distribution) in ADAPTERS.items():
        try:
            found[name] = f"{distribution} {metadata.version(distribution)}" if distribution else "asyncio"
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found
