"""The workloads by their numbers: the code, the parameters and the peers of each."""

from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks import peers, redisson
from benchmarks.commands import SECTIONS
from benchmarks.observer import Observer
from benchmarks.run import Outcome, Run
from benchmarks.workloads import (
    crowd,
    endpoint,
    growth,
    hand_off,
    in_process,
    many_held,
    many_waiters,
    own_locks,
    pass_around,
    permits,
    quorum,
    readers,
    server_work,
    several_names,
)

Function = Callable[[Run, Observer], Awaitable[Outcome]]
Parameters = Mapping[str, float]

LIBRARIES = (
    "coredis",
    "pottery",
    "py-redis-semaphore",
    "redis-lock-py",
    "redis-fifo-lock",
    "grelmicro",
    "valkey-glide",
)
# These peers keep a connection for each waiter, or a place among the thousand requests that may be under way at once.
_UP_TO_1000 = dict.fromkeys(
    ("redis-lock-py", "py-redis-semaphore", "redis-fifo-lock", "grelmicro", "valkey-glide"), 1000
)


@dataclass(frozen=True)
class Workload:
    """One row of the table."""

    title: str
    run: Function
    parameters: tuple[Parameters, ...]
    peers: tuple[str, ...]
    """In the order in which they run in a round: peers that figures compare are neighbours."""
    quick: tuple[Parameters, ...] | None = None
    """Smaller parameters for a quick look; ``None``: the same."""
    quick_peers: tuple[str, ...] = ("aiolock",)
    special: Mapping[str, Function] = field(default_factory=dict)
    """Peers that are measured by a function of their own."""
    work: Callable[[Run], Coroutine[Any, Any, None]] | None = None
    """The part of further processes."""
    factor: float = 1.0
    """The factor by which its measurement is longer than others'."""
    patience: float = 90.0
    """Seconds after which a run that has not ended has failed, beside those that are measured."""
    most: Mapping[str, float] = field(default_factory=dict)
    """The greatest first parameter that makes sense for a peer; runs above it are left out."""
    server: str | None = None
    """A program to run in place of the server of all others."""
    has_loop: bool = True
    """The loop matters; if it does not, one is enough."""


# The cost for the server, next to the cost of Redisson's commands for the same.
_PRIMITIVES = {
    "aiolock": "redisson-lock",
    "lock-commands": "redisson-lock",
    "fair": "redisson-fair",
    "read": "redisson-read",
    "write": "redisson-write",
    "permit": "redisson-permit",
    "counted": "redisson-semaphore",
    "latch": "redisson-latch",
}
_SERVICES = ("aiolock", "redis-py", "behind", "no-lock")
_IN_PROCESS = ("aiolock", "block", "behind", "block-behind", "no-lock")
_OWN = ("aiolock", "bare", "redis-py", "pipelined", "batcher", *LIBRARIES)
_BY_PIPE: Mapping[str, Function] = {"pipelined": own_locks.pipelined, **dict.fromkeys(redisson.PEERS, redisson.run)}


def _neighbours() -> Iterator[str]:
    """The peers of B16: for each primitive, the two sides that are compared."""
    yield from ("redis-py", "redis-py-commands", "empty-scripts")
    for ours, theirs in _PRIMITIVES.items():
        yield from (ours, f"{peers.OLDER}{ours}", theirs)


_ON_THE_SERVER = Workload(
    "what a section costs the server: 100 tasks, a lock for each, and one for all",
    server_work.run,
    ({"sharing": 1}, {"sharing": server_work.TASKS}),
    tuple(dict.fromkeys(_neighbours())),
    quick=({"sharing": 1},),
    quick_peers=("aiolock", "lock-commands", "redisson-lock"),
    special=dict.fromkeys((*SECTIONS, f"{peers.OLDER}lock-commands"), server_work.by_hand),
    most={peer: 1 for peer in _neighbours() if peer.removeprefix(peers.OLDER) in ("read", "latch")},
    has_loop=False,
)

WORKLOADS: dict[str, Workload] = {
    "B1": Workload(
        "one task, a lock that nobody else wants",
        own_locks.run,
        ({"tasks": 1},),
        (
            *("telemetry", "aiolock", f"{peers.OLDER}aiolock", "behind", "bare", "redis-py"),
            *(*reversed(redisson.PEERS), *LIBRARIES),
        ),
        quick_peers=("telemetry", "aiolock", "behind", "bare", "redis-py"),
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
        ("aiolock", "behind", "bare", "redis-py", "fair", *LIBRARIES, *redisson.PEERS),
        quick_peers=("aiolock", "behind", "bare", "fair"),
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
        most=_UP_TO_1000,
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
        _SERVICES,
        quick=({"keys": endpoint.CLIENTS},),
        quick_peers=("aiolock", "redis-py", "behind"),
        work=endpoint.serve_fastapi,
    ),
    "B11": Workload(
        "the same with aiohttp",
        endpoint.run,
        ({"keys": endpoint.CLIENTS}, {"keys": 1}),
        _SERVICES,
        quick=({"keys": endpoint.CLIENTS},),
        quick_peers=("aiolock", "redis-py", "behind"),
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
    "B16": _ON_THE_SERVER,
    "B17": replace(_ON_THE_SERVER, title="the same on Redis", server="redis-server"),
    "B18": Workload(
        "20 requests at once in the process of a FastAPI service, without a network",
        in_process.fastapi,
        ({"keys": endpoint.CLIENTS},),
        _IN_PROCESS,
        quick_peers=("aiolock", "block"),
    ),
    "B19": Workload(
        "the same with aiohttp",
        in_process.aiohttp,
        ({"keys": endpoint.CLIENTS},),
        _IN_PROCESS,
        quick_peers=("aiolock", "block"),
    ),
}
