"""The public surface, written down: a change here is a change for users."""

import inspect
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

import pytest

import aiolock
import aiolock.aiohttp
import aiolock.fastapi
import aiolock.opentelemetry
import aiolock.testing

NAMES = [
    "Acquired",
    "AioLockError",
    "AsyncCountDownLatch",
    "AsyncFairLock",
    "AsyncLeader",
    "AsyncMultiLock",
    "AsyncOnce",
    "AsyncPermitExpirableSemaphore",
    "AsyncRLock",
    "AsyncReadLock",
    "AsyncReadWriteLock",
    "AsyncSemaphore",
    "AsyncWriteLock",
    "BackendError",
    "ClientClosedError",
    "ClientStatistics",
    "Duration",
    "HandedOff",
    "HeldLock",
    "HeldMultiLock",
    "HeldPermits",
    "HeldSemaphore",
    "Holder",
    "Holding",
    "Lease",
    "LeaseLostError",
    "LockActivity",
    "LockClient",
    "LockConfig",
    "LockEvent",
    "LockKind",
    "LockStatistics",
    "LockTimeoutError",
    "Loss",
    "LossReason",
    "Lost",
    "MultiLease",
    "MultiLoss",
    "NotALockError",
    "NotAcquired",
    "NotAcquiredReason",
    "NotHeldError",
    "OnceFailedError",
    "Orphaned",
    "QuorumError",
    "Released",
    "RenewalLate",
    "Renewed",
    "ReplicationError",
    "Slot",
    "Telemetry",
    "Term",
    "Turn",
    "WaitStarted",
    "Waiting",
    "background",
    "to_thread",
]
ALIASES = {"Duration", "LockKind", "LossReason", "NotAcquiredReason"}
KIND = str(aiolock.LockKind).replace("typing.", "")
WHO = f"name: str, kind: {KIND}, owner: str, token: int"
FUNCTIONS = {
    "background": "(*work: collections.abc.Coroutine[Any, Any, object]) "
    "-> contextlib.AbstractAsyncContextManager[None]",
    "to_thread": "(function: collections.abc.Callable[~P, ~R], /, *args: P.args, **kwargs: P.kwargs) -> ~R",
}
CLASSES = [getattr(aiolock, name) for name in NAMES if name not in {*ALIASES, *FUNCTIONS}]

MEMBERS = {
    "LockClient": """
        aclose(self) -> None
        activity(self) -> list[aiolock.LockActivity]
        count_down_latch(self, name: str) -> aiolock.AsyncCountDownLatch
        fair_lock(self, name: str, *, owner: str | None = None) -> aiolock.AsyncFairLock
        from_url(url: str, *, config: aiolock.LockConfig | None = None, **settings: Any) -> Self
        leader(self, name: str, *, pause: float | datetime.timedelta = 1) -> aiolock.AsyncLeader
        lock(self, name: str, *, owner: str | None = None) -> aiolock.AsyncRLock
        multi(self, *locks: str | aiolock.AsyncRLock | aiolock.AsyncFairLock | aiolock.AsyncReadLock | \
aiolock.AsyncWriteLock | aiolock.AsyncPermitExpirableSemaphore, owner: str | None = None) -> aiolock.AsyncMultiLock
        once(self, key: str, *, keep: float | datetime.timedelta, wait: float | datetime.timedelta | None = None, \
failures: Literal['release', 'remember'] = 'release') -> aiolock.AsyncOnce
        permit_expirable_semaphore(self, name: str, permits: int | None = None, *, owner: str | None = None) -> \
aiolock.AsyncPermitExpirableSemaphore
        ping(self) -> None
        read_write_lock(self, name: str, *, owner: str | None = None) -> aiolock.AsyncReadWriteLock
        redlock(redises: 'Iterable[Redis]', *, config: aiolock.LockConfig | None = None, \
longest_lease: float | datetime.timedelta | None = None) -> Self
        semaphore(self, name: str, permits: int | None = None) -> aiolock.AsyncSemaphore
        slot(self, name: str, *, every: float | datetime.timedelta) -> aiolock.Slot
        statistics(self) -> aiolock.ClientStatistics
        synchronized(self, name: str, *more: str, of: 'Maker | None' = None, \
wait: float | datetime.timedelta | None = None, lease: float | datetime.timedelta | None = None, \
at_least: float | datetime.timedelta | None = None) -> \
collections.abc.Callable[[collections.abc.Callable[~P, collections.abc.Coroutine[typing.Any, typing.Any, ~R]]], \
collections.abc.Callable[~P, collections.abc.Coroutine[typing.Any, typing.Any, ~R]]]
        """,
    "AsyncRLock": """
        acquire(self, *, lease: float | datetime.timedelta | None = None) -> aiolock.Lease
        force_release(self) -> bool
        held(self) -> bool
        hold(self, wait: float | datetime.timedelta | None = None, lease: float | datetime.timedelta | None = None, *, \
at_least: float | datetime.timedelta | None = None) -> aiolock.HeldLock
        hold_count(self) -> int
        holder(self) -> aiolock.Holder | None
        locked(self) -> bool
        name: property
        release(self) -> None
        remaining(self) -> float | None
        statistics(self) -> aiolock.LockStatistics
        try_lock(self, wait: float | datetime.timedelta | None = 0, \
lease: float | datetime.timedelta | None = None) -> aiolock.Lease | None
        """,
    "Lease": """
        check(self) -> None
        given_back: attribute
        holds: property
        lease: attribute
        lost: property
        name: property
        release(self) -> None
        remaining: property
        renew(self, lease: float | datetime.timedelta | None = None) -> None
        token: property
        watched: attribute
        """,
    "Loss": """
        is_set(self) -> bool
        """,
    "HeldLock": "",
    "AsyncOnce": """
        name: property
        run(self, function: collections.abc.Callable[~P, collections.abc.Awaitable[~R]], /, *args: P.args, \
**kwargs: P.kwargs) -> 'R | None'
        """,
    "Turn": """
        done: attribute
        failure: attribute
        lease: attribute
        result: property
        """,
    "Slot": """
        ends: attribute
        name: attribute
        number: attribute
        remaining: property
        """,
    "AsyncLeader": """
        holder(self) -> aiolock.Holder | None
        name: property
        run(self, work: collections.abc.Callable[[aiolock.Term], \
collections.abc.Coroutine[typing.Any, typing.Any, object]]) -> None
        """,
    "Term": """
        check(self) -> None
        lease: attribute
        lost: property
        name: property
        run(self, *work: collections.abc.Coroutine[typing.Any, typing.Any, object]) -> None
        start(self, work: collections.abc.Coroutine[typing.Any, typing.Any, ~T]) -> 'asyncio.Task[T]'
        token: property
        """,
    "AsyncMultiLock": """
        acquire(self, *, lease: float | datetime.timedelta | None = None) -> aiolock.MultiLease
        force_release(self) -> bool
        held(self) -> bool
        hold(self, wait: float | datetime.timedelta | None = None, lease: float | datetime.timedelta | None = None) \
-> 'HeldMultiLock'
        hold_count(self) -> int
        holders(self) -> collections.abc.Mapping[str, collections.abc.Sequence[aiolock.Holder]]
        locked(self) -> bool
        name: property
        names: property
        release(self) -> None
        remaining(self) -> float | None
        statistics(self) -> aiolock.LockStatistics
        try_lock(self, wait: float | datetime.timedelta | None = 0, \
lease: float | datetime.timedelta | None = None) -> aiolock.MultiLease | None
        """,
    "MultiLease": """
        check(self) -> None
        given_back: property
        lease: property
        leases: property
        lost: property
        release(self) -> None
        remaining: property
        renew(self, lease: float | datetime.timedelta | None = None) -> None
        tokens: property
        """,
    "MultiLoss": """
        is_set(self) -> bool
        """,
    "HeldMultiLock": "",
    "AsyncReadWriteLock": """
        force_release(self) -> bool
        holders(self) -> collections.abc.Sequence[aiolock.Holder]
        locked(self) -> bool
        name: property
        read: property
        statistics(self) -> aiolock.LockStatistics
        write: property
        """,
    "AsyncReadLock": """
        acquire(self, *, lease: float | datetime.timedelta | None = None) -> aiolock.Lease
        force_release(self) -> bool
        held(self) -> bool
        hold(self, wait: float | datetime.timedelta | None = None, lease: float | datetime.timedelta | None = None) \
-> 'HeldLock'
        hold_count(self) -> int
        holders(self) -> collections.abc.Sequence[aiolock.Holder]
        locked(self) -> bool
        name: property
        release(self) -> None
        remaining(self) -> float | None
        statistics(self) -> aiolock.LockStatistics
        try_lock(self, wait: float | datetime.timedelta | None = 0, \
lease: float | datetime.timedelta | None = None) -> aiolock.Lease | None
        """,
    "AsyncWriteLock": """
        acquire(self, *, lease: float | datetime.timedelta | None = None) -> aiolock.Lease
        force_release(self) -> bool
        held(self) -> bool
        hold(self, wait: float | datetime.timedelta | None = None, lease: float | datetime.timedelta | None = None) \
-> 'HeldLock'
        hold_count(self) -> int
        holder(self) -> aiolock.Holder | None
        locked(self) -> bool
        name: property
        release(self) -> None
        remaining(self) -> float | None
        statistics(self) -> aiolock.LockStatistics
        try_lock(self, wait: float | datetime.timedelta | None = 0, \
lease: float | datetime.timedelta | None = None) -> aiolock.Lease | None
        """,
    "AsyncPermitExpirableSemaphore": """
        acquire(self, permits: int | None = None, *, lease: float | datetime.timedelta | None = None) -> aiolock.Lease
        acquired(self) -> int
        add_permits(self, permits: int) -> None
        available(self) -> int
        force_release(self) -> bool
        hold(self, wait: float | datetime.timedelta | None = None, lease: float | datetime.timedelta | None = None, *, \
permits: int | None = None) -> 'HeldPermits'
        holders(self) -> collections.abc.Sequence[aiolock.Holder]
        locked(self) -> bool
        name: property
        permits(self) -> int
        release(self, permit: aiolock.Lease | None = None) -> None
        renew(self, permit: aiolock.Lease, lease: float | datetime.timedelta | None = None) -> None
        set_permits(self, permits: int) -> None
        statistics(self) -> aiolock.LockStatistics
        taking(self, permits: int) -> 'AsyncPermitExpirableSemaphore'
        try_acquire(self, permits: int | None = None, wait: float | datetime.timedelta | None = 0, \
lease: float | datetime.timedelta | None = None) -> aiolock.Lease | None
        """,
    "HeldPermits": "",
    "AsyncSemaphore": """
        acquire(self, permits: int | None = None) -> None
        add_permits(self, permits: int) -> None
        available(self) -> int
        drain(self) -> int
        hold(self, wait: float | datetime.timedelta | None = None, *, permits: int | None = None) -> 'HeldSemaphore'
        locked(self) -> bool
        name: property
        release(self, permits: int | None = None) -> None
        statistics(self) -> aiolock.LockStatistics
        taking(self, permits: int) -> 'AsyncSemaphore'
        try_acquire(self, permits: int | None = None, wait: float | datetime.timedelta | None = 0) -> bool
        try_set_permits(self, permits: int) -> bool
        """,
    "HeldSemaphore": "",
    "AsyncCountDownLatch": """
        count(self) -> int
        count_down(self) -> None
        delete(self) -> bool
        name: property
        statistics(self) -> aiolock.LockStatistics
        try_set_count(self, count: int) -> bool
        wait(self, timeout: float | datetime.timedelta | None = None) -> bool
        """,
}

CONSTRUCTORS = {
    "LockClient": "(redis: 'Redis | RedisCluster', *, config: aiolock.LockConfig | None = None) -> None",
    "LockConfig": "(*, prefix: str = '', lease: float | datetime.timedelta = 30.0, "
    "renew_interval: float | datetime.timedelta | None = None, drift: float | datetime.timedelta | None = None, "
    "token_retention: float | datetime.timedelta = 3600.0, release_timeout: float | datetime.timedelta = 5.0, "
    "command_timeout: float | datetime.timedelta = 5.0, replicas: Union[int, Literal['all'], NoneType] = None, "
    "replicas_timeout: float | datetime.timedelta = 1.0, client_name: str | None = None, "
    "on_event: collections.abc.Callable[[aiolock.LockEvent], object] | None = None, "
    "telemetry: aiolock.Telemetry | None = None) -> None",
    "Holder": "(client: str, owner: str, holds: int, remaining: float, host: str | None = None, "
    "pid: int | None = None, client_name: str | None = None) -> None",
    "LockStatistics": "(held: int = 0, parked: int = 0, subscriptions: int = 0, renewals: int = 0, "
    "hand_offs: int = 0) -> None",
    "ClientStatistics": "(held: int = 0, parked: int = 0, subscriptions: int = 0, pending: int = 0, "
    "connections: int = 0, commands: int = 0, batches: int = 0, renewals: int = 0, losses: int = 0, "
    "hand_offs: int = 0) -> None",
    "Slot": "(name: str, number: int, ends: float) -> None",
    "Holding": "(owner: str, task: str | None, token: int, holds: int, held: float, remaining: float | None) -> None",
    "Waiting": "(owner: str, task: str | None, waited: float) -> None",
    "LockActivity": f"(name: str, kind: {KIND}, holding: tuple[aiolock.Holding, ...], "
    "waiting: tuple[aiolock.Waiting, ...]) -> None",
    "WaitStarted": f"({WHO}, holder: str | None) -> None",
    "Acquired": f"({WHO}, holds: int, waited: float, contended: bool, holder: str | None, mark: str | None) -> None",
    "NotAcquired": f"({WHO}, reason: Literal['busy', 'timeout', 'cancelled', 'done', 'error'], error: str | None, "
    "waited: float, contended: bool, holder: str | None, mark: str | None) -> None",
    "Released": f"({WHO}, holds: int, held: float, confirmed: bool) -> None",
    "Renewed": f"({WHO}, remaining: float) -> None",
    "RenewalLate": f"({WHO}, late: float, remaining: float) -> None",
    "Lost": f"({WHO}, reason: Literal['expired', 'taken', 'forced', 'unreachable', 'closed'], held: float, "
    "ran_out: bool) -> None",
    "Orphaned": f"({WHO}, holds: int, task: str, held: float) -> None",
    "HandedOff": f"({WHO}) -> None",
}


def public_members(owner: type) -> Iterator[tuple[str, Any]]:
    for name in sorted(dir(owner)):
        if not name.startswith("_") and name not in dir(Exception):
            yield name, inspect.getattr_static(owner, name)


def written(name: str, member: Any) -> str:
    """A member as MEMBERS has it."""
    if isinstance(member, property):
        return f"{name}: property"
    if isinstance(member, classmethod):
        return name + str(inspect.signature(member.__get__(None, object))).replace("typing.", "")
    return name + str(inspect.signature(member)) if callable(member) else f"{name}: attribute"


def test_all_is_what_is_written_here_and_sorted() -> None:
    assert aiolock.__all__ == NAMES == sorted(NAMES)


def test_nothing_else_is_public() -> None:
    modules = {name for name, value in vars(aiolock).items() if inspect.ismodule(value)}
    assert {name for name in vars(aiolock) if not name.startswith("_")} - modules == set(NAMES)


def test_the_members_of_the_classes() -> None:
    found = {f"{name}.{written(*member)}" for name in MEMBERS for member in public_members(getattr(aiolock, name))}
    expected = {f"{name}.{line.strip()}" for name, lines in MEMBERS.items() for line in lines.strip().splitlines()}
    assert (found - expected, expected - found) == (set(), set())


def signatures(names: Iterable[str]) -> dict[str, str]:
    """As Python 3.11 writes them."""
    found = {name: str(inspect.signature(getattr(aiolock, name))) for name in names}
    return {name: signature.replace("typing.", "").replace("~P.", "P.") for name, signature in found.items()}


def test_the_constructors() -> None:
    assert signatures(CONSTRUCTORS) == CONSTRUCTORS


def test_the_function_of_opentelemetry() -> None:
    assert aiolock.opentelemetry.__all__ == ["instrument"]
    parameters = inspect.signature(aiolock.opentelemetry.instrument).parameters.values()
    found = {each.name: (each.default, each.kind is inspect.Parameter.KEYWORD_ONLY) for each in parameters}
    assert found == {
        "config": (None, False),
        "group": (None, True),
        "link_after": (0.1, True),
        "meter_provider": (None, True),
        "tracer_provider": (None, True),
    }


def test_the_functions() -> None:
    assert signatures(FUNCTIONS) == FUNCTIONS
    assert [name for name in FUNCTIONS if "Raises:" not in (inspect.getdoc(getattr(aiolock, name)) or "")] == []


def test_coroutine_functions_are_those_that_do_io() -> None:
    owners = (aiolock.LockClient, aiolock.AsyncRLock, aiolock.Lease, aiolock.Loss)
    waiting = {
        name for owner in owners for name, member in public_members(owner) if inspect.iscoroutinefunction(member)
    }
    assert waiting == {
        *("aclose", "acquire", "try_lock", "release", "locked", "held", "hold_count", "remaining", "holder"),
        *("force_release", "renew", "ping", "slot"),
    }


def test_every_class_is_documented() -> None:
    """By more than what dataclass writes of itself."""
    bare = [each for each in CLASSES if not each.__doc__ or each.__doc__.startswith(f"{each.__name__}(")]
    assert bare == []


def test_every_public_method_and_property_is_documented() -> None:
    bare = [
        f"{owner.__name__}.{name}"
        for owner in CLASSES
        for name, member in public_members(owner)
        if (callable(member) or isinstance(member, property | classmethod)) and not inspect.getdoc(member)
    ]
    assert bare == []


def test_what_is_raised_is_documented() -> None:
    for method in (aiolock.AsyncRLock.acquire, aiolock.AsyncRLock.release, aiolock.Lease.release, aiolock.Lease.renew):
        text = inspect.getdoc(method) or ""
        assert ("Raises:" in text, "LeaseLostError" in text) == (True, True), method


def test_the_version_is_a_number() -> None:
    assert [part.isdigit() for part in aiolock.__version__.split(".")[:2]] == [True, True]


@pytest.mark.parametrize(
    "module",
    [aiolock, aiolock.testing, aiolock.fastapi, aiolock.aiohttp, aiolock.opentelemetry],
    ids=lambda of: of.__name__,
)
def test_each_class_and_function_is_known_by_the_name_that_users_import(module: ModuleType) -> None:
    public = {
        name: value
        for name in module.__all__
        if inspect.isroutine(value := getattr(module, name)) or inspect.isclass(value)
    }
    assert {f"{each.__module__}.{each.__qualname__}" for each in public.values()} == {
        f"{module.__name__}.{name}" for name in public
    }
