"""The public surface, written down: a change here is a change for users."""

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

import aiolock

NAMES = [
    "Acquired",
    "AioLockError",
    "AsyncCountDownLatch",
    "AsyncMultiLock",
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
    "Lease",
    "LeaseLostError",
    "LockClient",
    "LockConfig",
    "LockEvent",
    "LockStatistics",
    "LockTimeoutError",
    "Loss",
    "LossReason",
    "Lost",
    "MultiLease",
    "MultiLoss",
    "NotALockError",
    "NotHeldError",
    "Orphaned",
    "QuorumError",
    "Released",
    "RenewalLate",
    "Renewed",
    "ReplicationError",
    "background",
    "to_thread",
]
ALIASES = {"Duration", "LossReason"}
FUNCTIONS = {
    "background": "(*work: collections.abc.Coroutine[Any, Any, object]) "
    "-> contextlib.AbstractAsyncContextManager[None]",
    "to_thread": "(function: collections.abc.Callable[~P, ~R], /, *args: P.args, **kwargs: P.kwargs) -> ~R",
}
CLASSES = [getattr(aiolock, name) for name in NAMES if name not in {*ALIASES, *FUNCTIONS}]

MEMBERS = {
    "LockClient": """
        aclose(self) -> None
        count_down_latch(self, name: str) -> aiolock.AsyncCountDownLatch
        from_url(url: str, *, config: aiolock.LockConfig | None = None, **settings: Any) -> Self
        lock(self, name: str, *, owner: str | None = None) -> aiolock.AsyncRLock
        multi(self, *locks: str | aiolock.AsyncRLock | aiolock.AsyncReadLock | aiolock.AsyncWriteLock, \
owner: str | None = None) -> aiolock.AsyncMultiLock
        permit_expirable_semaphore(self, name: str, permits: int | None = None, *, owner: str | None = None) -> \
aiolock.AsyncPermitExpirableSemaphore
        ping(self) -> None
        read_write_lock(self, name: str, *, owner: str | None = None) -> aiolock.AsyncReadWriteLock
        redlock(redises: 'Iterable[Redis]', *, config: aiolock.LockConfig | None = None, \
longest_lease: float | datetime.timedelta | None = None) -> Self
        semaphore(self, name: str, permits: int | None = None) -> aiolock.AsyncSemaphore
        statistics(self) -> aiolock.ClientStatistics
        synchronized(self, name: str, *more: str, wait: float | datetime.timedelta | None = None, \
lease: float | datetime.timedelta | None = None) -> \
collections.abc.Callable[[collections.abc.Callable[~P, collections.abc.Coroutine[typing.Any, typing.Any, ~R]]], \
collections.abc.Callable[~P, collections.abc.Coroutine[typing.Any, typing.Any, ~R]]]
        """,
    "AsyncRLock": """
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
    "AsyncMultiLock": """
        acquire(self, *, lease: float | datetime.timedelta | None = None) -> aiolock.MultiLease
        force_release(self) -> bool
        held(self) -> bool
        hold(self, wait: float | datetime.timedelta | None = None, lease: float | datetime.timedelta | None = None) \
-> 'HeldMultiLock'
        locked(self) -> bool
        name: property
        names: property
        release(self) -> None
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
        name: property
        read: property
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
        acquire(self, permits: int = 1, *, lease: float | datetime.timedelta | None = None) -> aiolock.Lease
        acquired(self) -> int
        add_permits(self, permits: int) -> None
        available(self) -> int
        force_release(self) -> bool
        hold(self, wait: float | datetime.timedelta | None = None, lease: float | datetime.timedelta | None = None, *, \
permits: int = 1) -> 'HeldPermits'
        holders(self) -> collections.abc.Sequence[aiolock.Holder]
        name: property
        permits(self) -> int
        release(self, permit: aiolock.Lease | None = None) -> None
        set_permits(self, permits: int) -> None
        statistics(self) -> aiolock.LockStatistics
        try_acquire(self, permits: int = 1, wait: float | datetime.timedelta | None = 0, \
lease: float | datetime.timedelta | None = None) -> aiolock.Lease | None
        """,
    "HeldPermits": "",
    "AsyncSemaphore": """
        acquire(self, permits: int = 1) -> None
        add_permits(self, permits: int) -> None
        available(self) -> int
        drain(self) -> int
        hold(self, wait: float | datetime.timedelta | None = None, *, permits: int = 1) -> 'HeldSemaphore'
        name: property
        release(self, permits: int = 1) -> None
        statistics(self) -> aiolock.LockStatistics
        try_acquire(self, permits: int = 1, wait: float | datetime.timedelta | None = 0) -> bool
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
    "on_event: collections.abc.Callable[[aiolock.LockEvent], object] | None = None) -> None",
    "Holder": "(client: str, owner: str, holds: int, remaining: float, host: str | None = None, "
    "pid: int | None = None, client_name: str | None = None) -> None",
    "LockStatistics": "(held: int = 0, parked: int = 0, subscriptions: int = 0, renewals: int = 0, "
    "hand_offs: int = 0) -> None",
    "ClientStatistics": "(held: int = 0, parked: int = 0, subscriptions: int = 0, pending: int = 0, "
    "connections: int = 0, commands: int = 0, batches: int = 0, renewals: int = 0, losses: int = 0, "
    "hand_offs: int = 0) -> None",
    "Acquired": "(name: str, owner: str, token: int, holds: int, waited: float) -> None",
    "Released": "(name: str, owner: str, token: int, holds: int) -> None",
    "Renewed": "(name: str, owner: str, token: int, remaining: float) -> None",
    "RenewalLate": "(name: str, owner: str, token: int, late: float, remaining: float) -> None",
    "Lost": "(name: str, owner: str, token: int, "
    "reason: Literal['expired', 'taken', 'forced', 'unreachable', 'closed']) -> None",
    "Orphaned": "(name: str, owner: str, token: int, holds: int, task: str) -> None",
    "HandedOff": "(name: str, owner: str, token: int) -> None",
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


@pytest.mark.parametrize("name", MEMBERS)
def test_the_members_of_the_classes(name: str) -> None:
    owner = getattr(aiolock, name)
    assert [written(*member) for member in public_members(owner)] == [
        line.strip() for line in MEMBERS[name].strip().splitlines()
    ]


@pytest.mark.parametrize("name", CONSTRUCTORS)
def test_the_constructors(name: str) -> None:
    signature = str(inspect.signature(getattr(aiolock, name))).replace("typing.", "")
    assert signature == CONSTRUCTORS[name]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_functions(name: str) -> None:
    function = getattr(aiolock, name)
    signature = str(inspect.signature(function)).replace("typing.", "")
    assert signature.replace("~P.", "P.") == FUNCTIONS[name]  # As Python 3.11 writes it.
    assert "Raises:" in (inspect.getdoc(function) or "")


def test_coroutine_functions_are_those_that_do_io() -> None:
    owners = (aiolock.LockClient, aiolock.AsyncRLock, aiolock.Lease, aiolock.Loss)
    waiting = {
        name for owner in owners for name, member in public_members(owner) if inspect.iscoroutinefunction(member)
    }
    assert waiting == {
        *("aclose", "acquire", "try_lock", "release", "locked", "held", "hold_count", "remaining", "holder"),
        *("force_release", "renew", "ping"),
    }


@pytest.mark.parametrize("owner", CLASSES)
def test_every_class_is_documented(owner: type) -> None:
    assert owner.__doc__
    assert not owner.__doc__.startswith(f"{owner.__name__}("), "that is what dataclass writes of itself"


@pytest.mark.parametrize("owner", CLASSES)
def test_every_public_method_and_property_is_documented(owner: type) -> None:
    bare = [
        name
        for name, member in public_members(owner)
        if (callable(member) or isinstance(member, property | classmethod)) and not inspect.getdoc(member)
    ]
    assert not bare


@pytest.mark.parametrize("name", ["AsyncRLock.acquire", "AsyncRLock.release", "Lease.release", "Lease.renew"])
def test_what_is_raised_is_documented(name: str) -> None:
    owner, method = name.split(".")
    text = inspect.getdoc(getattr(getattr(aiolock, owner), method)) or ""
    assert "Raises:" in text
    assert "LeaseLostError" in text


def test_every_class_says_it_is_from_this_package() -> None:
    assert {owner.__module__.partition(".")[0] for owner in CLASSES} == {"aiolock"}


def test_the_version_is_a_number() -> None:
    assert [part.isdigit() for part in aiolock.__version__.split(".")[:2]] == [True, True]


def test_each_class_is_known_by_the_name_that_users_import() -> None:
    assert [repr(each) for each in CLASSES] == [f"<class 'aiolock.{each.__name__}'>" for each in CLASSES]
