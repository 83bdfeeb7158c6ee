"""The workloads by their numbers: what runs, with which parameters, for which peers."""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks import redisson
from benchmarks.observer import Observer
from benchmarks.run import Outcome, Run
from benchmarks.workloads import (
    crowd,
    endpoint,
    growth,
    hand_off,
    many_held,
    many_waiters,
    own_locks,
    pass_around,
    permits,
    quorum,
    readers,
    several_names,
)

Function = Callable[[Run, Observer], Awaitable[Outcome]]
Parameters = Mapping[str, float]

LIBRARIES = ("coredis", "pottery", "py-redis-semaphore", "redis-lock-py")


@dataclass(frozen=True)
class Workload:
    """One row of the table."""

    title: str
    run: Function
    parameters: tuple[Parameters, ...]
    peers: tuple[str, ...]
    """In the order in which they run in a round: what the figures compare is neighbours."""
    quick: tuple[Parameters, ...] | None = None
    """Smaller parameters for a quick look; ``None``: the same."""
    quick_peers: tuple[str, ...] = ("aiolock",)
    special: Mapping[str, Function] = field(default_factory=dict)
    """Peers that are measured by a function of their own."""
    work: Callable[[Run], Coroutine[Any, Any, None]] | None = None
    """What further processes do."""
    factor: float = 1.0
    """How many times as long as others it is measured."""
    patience: float = 90.0
    """Seconds after which a run that has not ended has failed, beside those that are measured."""
    most: Mapping[str, float] = field(default_factory=dict)
    """The greatest first parameter that makes sense for a peer; runs above it are left out."""


_OWN = ("aiolock", "bare", "redis-py", "pipelined", "batcher", *LIBRARIES)
_BY_PIPE: Mapping[str, Function] = {"pipelined": own_locks.pipelined, **dict.fromkeys(redisson.PEERS, redisson.run)}

WORKLOADS: dict[str, Workload] = {
    "B1": Workload(
        "one task, a lock that nobody else wants",
        own_locks.run,
        ({"tasks": 1},),
        ("aiolock", "telemetry", "bare", "redis-py", *LIBRARIES, *redisson.PEERS),
        quick_peers=("aiolock", "telemetry", "bare", "redis-py"),
        special=_BY_PIPE,
    ),
    "B2": Workload(
        "100 tasks, a lock for each",
        own_locks.run,
        ({"tasks": 100},),
        (*_OWN, *redisson.PEERS),
        quick_peers=("aiolock", "redis-py", "pipelined"),
        special=_BY_PIPE,
    ),
    "B3": Workload(
        "1,000 tasks, a lock for each",
        own_locks.run,
        ({"tasks": 1000},),
        ("aiolock", "telemetry", *_OWN[1:], "redis-py-default-pool", *redisson.PEERS),
        quick_peers=("aiolock", "telemetry", "redis-py", "pipelined"),
        special=_BY_PIPE,
    ),
    "B4": Workload(
        "hand-off to a waiter in another process",
        hand_off.run,
        ({},),
        ("aiolock", "chain", "fair", "redis-py", *LIBRARIES),
        quick_peers=("aiolock", "chain", "fair", "redis-py"),
        work=hand_off.work,
        factor=3,
    ),
    "B5": Workload(
        "50 tasks of one process pass one lock around",
        pass_around.run,
        ({"tasks": 50},),
        ("aiolock", "bare", "redis-py", "fair", *LIBRARIES, *redisson.PEERS),
        quick_peers=("aiolock", "bare", "fair"),
        special={"bare": pass_around.alone, **dict.fromkeys(redisson.PEERS, redisson.pass_around)},
    ),
    "B6": Workload(
        "8 processes with 8 tasks each on one name",
        crowd.run,
        ({"processes": 8, "tasks": 8},),
        ("aiolock", "redis-py", *LIBRARIES),
        quick=({"processes": 4, "tasks": 4},),
        quick_peers=("aiolock", "redis-py"),
        work=crowd.work,
        factor=2,
    ),
    "B7": Workload(
        "10,000 locks held, at leases of 30 and of 3 seconds",
        many_held.run,
        ({"lease": 30, "locks": 10_000, "leases": 1.5}, {"lease": 3, "locks": 10_000, "leases": 3}),
        ("aiolock", "py-redis-semaphore"),
        quick=({"lease": 3, "locks": 1000, "leases": 1},),
        patience=180,
    ),
    "B8": Workload(
        "many tasks wait for one name",
        many_waiters.run,
        ({"waiters": 10}, {"waiters": 100}, {"waiters": 1000}, {"waiters": 10_000}),
        ("aiolock", "asyncio-lock", "redis-py", *LIBRARIES),
        quick=({"waiters": 10}, {"waiters": 1000}),
        factor=2,
        patience=180,
        most={"redis-lock-py": 1000, "py-redis-semaphore": 1000},
    ),
    "B9": Workload(
        "100,000 names, each used once",
        growth.run,
        ({"names": 100_000},),
        ("aiolock", "bare", "redis-py"),
        quick=({"names": 5000},),
        patience=600,
    ),
    "B10": Workload(
        "20 clients of a FastAPI endpoint: for 20 orders, and for one",
        endpoint.run,
        ({"keys": endpoint.CLIENTS}, {"keys": 1}),
        ("aiolock", "no-lock", "redis-py"),
        quick_peers=("aiolock", "no-lock", "redis-py"),
        work=endpoint.serve_fastapi,
    ),
    "B11": Workload(
        "the same with aiohttp",
        endpoint.run,
        ({"keys": endpoint.CLIENTS}, {"keys": 1}),
        ("aiolock", "no-lock", "redis-py"),
        quick_peers=("aiolock", "no-lock", "redis-py"),
        work=endpoint.serve_aiohttp,
    ),
    "B12": Workload(
        "several locks as one, that nobody else wants",
        several_names.run,
        ({"names": 2}, {"names": 10}),
        ("aiolock", "one-by-one", "redis-py", *LIBRARIES),
        quick_peers=("aiolock", "one-by-one", "redis-py"),
    ),
    "B13": Workload(
        "four permits of a semaphore, for one task and for 32",
        permits.run,
        ({"tasks": 1}, {"tasks": 32}),
        ("aiolock", "as-lock", "counted", "py-redis-semaphore"),
        quick_peers=("aiolock", "as-lock"),
        most={"as-lock": 1},
    ),
    "B14": Workload(
        "reading under one name, one task and 100",
        readers.run,
        ({"tasks": 1}, {"tasks": 100}),
        ("aiolock", "as-lock", *redisson.PEERS),
        quick_peers=("aiolock", "as-lock"),
        special=dict.fromkeys(redisson.PEERS, redisson.read),
        most={"as-lock": 1},
    ),
    "B15": Workload(
        "a lock for each task on three servers, one task and 100",
        quorum.run,
        ({"tasks": 1}, {"tasks": 100}),
        ("aiolock", "quorum", "pottery-quorum", *redisson.PEERS),
        quick_peers=("aiolock", "quorum"),
        special=dict.fromkeys(redisson.PEERS, quorum.by_redisson),
    ),
}
