"""The peers, each behind one small adapter; an adapter is imported only when it is used."""

from importlib import import_module, metadata

from benchmarks.peers.adapter import Peer

# Peer: where its adapter is, and the distribution whose version is reported.
ADAPTERS: dict[str, tuple[str, str]] = {
    "aiolock": ("ours:Ours", "aiolock-redis"),
    "telemetry": ("ours:OursWithTelemetry", "aiolock-redis"),
    "one-by-one": ("ours:OursOneByOne", "aiolock-redis"),
    "as-lock": ("ours:OursAsLock", "aiolock-redis"),
    "fair": ("ours:OursFair", "aiolock-redis"),
    "counted": ("ours:OursCounted", "aiolock-redis"),
    "bare": ("bare:Bare", "redis"),
    "batcher": ("batcher:Batcher", "redis"),
    "chain": ("chain:Chain", "redis"),
    "redis-py": ("redis_py:RedisPy", "redis"),
    "redis-py-default-pool": ("redis_py:RedisPyDefaultPool", "redis"),
    "coredis": ("coredis_lock:Coredis", "coredis"),
    "pottery": ("pottery_lock:Pottery", "pottery"),
    "py-redis-semaphore": ("py_redis_semaphore:PyRedisSemaphore", "py-redis-semaphore"),
    "redis-lock-py": ("redis_lock_py:RedisLockPy", "redis-lock-py"),
    "quorum": ("quorum:Ours", "aiolock-redis"),
    "pottery-quorum": ("quorum:Pottery", "pottery"),
    "asyncio-lock": ("asyncio_lock:AsyncioLock", ""),
}
# Measured by functions of the workloads, as they have no lock to enter: the pipeline, the Java program, nothing at all.
WITHOUT_ADAPTER = ("pipelined", "redisson", "redisson-async", "no-lock")
NAMES = (*ADAPTERS, *WITHOUT_ADAPTER)


def make(name: str, url: str, tasks: int, lease: float) -> Peer:
    """The adapter of peer *name*, not yet connected; ImportError if it is not installed."""
    module, _, attribute = ADAPTERS[name][0].partition(":")
    adapter: type[Peer] = getattr(import_module(f"benchmarks.peers.{module}"), attribute)
    return adapter(url, tasks, lease)


def versions() -> dict[str, str]:
    """The version of every distribution that is installed, by peer."""
    found = {}
    for name, (_, distribution) in ADAPTERS.items():
        try:
            found[name] = f"{distribution} {metadata.version(distribution)}" if distribution else "asyncio"
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found
