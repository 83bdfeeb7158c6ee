"""The public surface, written down: a change here is a change for users."""

import inspect
import re
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

import pytest

import aiolock
import aiolock.aiohttp
import aiolock.blocking
import aiolock.fastapi
import aiolock.opentelemetry
import aiolock.testing
from tests.support.calls import is_coroutine_function

WORDS = """
    Acquired Adoption AioLockError AsyncCountDownLatch AsyncCountingSemaphore AsyncFairLock AsyncLeader AsyncMultiLock
    AsyncOnce AsyncRLock AsyncReadLock AsyncReadWriteLock AsyncSemaphore AsyncWriteLock BackendError Bypassed
    ClientClosedError ClientStatistics Duration HandedOff HeldCountingSemaphore HeldLock HeldMultiLock HeldSemaphore
    Holder Holding Lease LeaseLostError LockActivity LockClient LockConfig LockEvent LockKind LockStatistics
    LockTimeoutError Loss LossReason Lost MultiLease MultiLoss NotALockError NotAcquired NotAcquiredReason
    NotHeldError OnceFailedError Orphaned QuorumError Released RenewalLate Renewed RenewedByThread ReplicationError
    Slot Telemetry Term Turn WaitStarted Waiting background to_thread
"""
NAMES = WORDS.split()
ALIASES = {"Duration", "LockKind", "LossReason", "NotAcquiredReason"}
KIND = str(aiolock.LockKind).replace("typing.", "")
WHO = f"name: str, kind: {KIND}, owner: str, token: int"
FUNCTIONS = {
    "background": "(*work: Coroutine[Any, Any, object]) -> contextlib.AbstractAsyncContextManager[None]",
    "to_thread": "(function: Callable[~P, ~R], /, *args: P.args, **kwargs: P.kwargs) -> ~R",
}
CLASSES = [getattr(aiolock, name) for name in NAMES if name not in {*ALIASES, *FUNCTIONS}]

HALF = """
        acquire(self, *, lease: Duration | None = None) -> aiolock.Lease
        force_release(self) -> bool
        held(self) -> bool
        hold(self, wait: Duration | None = None, lease: Duration | None = None, *, release: \
Optional[Literal['answered', 'behind']] = None) -> aiolock.HeldLock
        hold_count(self) -> int
        locked(self) -> bool
        name: property
        release(self) -> None
        remaining(self) -> float | None
        statistics(self) -> aiolock.LockStatistics
        try_acquire(self, wait: Duration | None = 0, lease: Duration | None = None) -> aiolock.Lease | None
        try_lock(self, wait: Duration | None = 0, lease: Duration | None = None) -> aiolock.Lease | None
"""
MEMBERS = {
    "LockClient": """
        aclose(self) -> None
        activity(self) -> list[aiolock.LockActivity]
        adopt(self, ticket: str, *, name: str | Sequence[str] | None = None, kind: \
Optional[Literal['lock', 'fair_lock', 'read_lock', 'write_lock', 'semaphore', 'counting_semaphore', \
'count_down_latch', 'once', 'multi_lock']] = None, lease: Duration | None = None, owner: str | None = None) -> \
aiolock.Adoption[Any]
        count_down_latch(self, name: str) -> aiolock.AsyncCountDownLatch
        fair_lock(self, name: str, *, owner: str | None = None) -> aiolock.AsyncFairLock
        from_url(url: str, *, config: aiolock.LockConfig | None = None, **settings: Any) -> Self
        leader(self, name: str, *, pause: Duration = 1) -> aiolock.AsyncLeader
        lock(self, name: str, *, owner: str | None = None) -> aiolock.AsyncRLock
        multi(self, *locks: str | aiolock.AsyncRLock | aiolock.AsyncReadLock | \
aiolock.AsyncWriteLock | aiolock.AsyncSemaphore, owner: str | None = None) -> aiolock.AsyncMultiLock
        once(self, key: str, *, keep: Duration | Callable[[Any], Duration], wait: Duration | None = None, \
failures: Literal['release', 'remember'] = 'release', stale: Duration | None = None, \
on_unavailable: Literal['run', 'refuse'] = 'refuse') -> aiolock.AsyncOnce
        semaphore(self, name: str, permits: int | None = None, *, owner: str | None = None) -> \
aiolock.AsyncSemaphore
        ping(self) -> None
        read_write_lock(self, name: str, *, owner: str | None = None) -> aiolock.AsyncReadWriteLock
        redlock(redises: 'Iterable[Redis]', *, config: aiolock.LockConfig | None = None, longest_lease: Duration | \
None = None) -> Self
        counting_semaphore(self, name: str, permits: int | None = None) -> aiolock.AsyncCountingSemaphore
        slot(self, name: str, *, every: Duration) -> aiolock.Slot
        statistics(self) -> aiolock.ClientStatistics
        synchronized(self, name: str, *more: str, of: 'Maker | None' = None, wait: Duration | None = None, lease: \
Duration | None = None, at_least: Duration | None = None, release: \
Optional[Literal['answered', 'behind']] = None, busy: Literal['raise', 'skip'] = 'raise', \
on_unavailable: Literal['run', 'refuse'] = 'refuse') -> Callable[[Callable[~P, Coroutine[Any, Any, ~R]]], \
Callable[~P, Coroutine[Any, Any, Optional[~R]]]]
        """,
    "AsyncRLock": """
        acquire(self, *, lease: Duration | None = None) -> aiolock.Lease
        force_release(self, *, token: int = <Whose.ANYBODY: 0>) -> bool
        held(self) -> bool
        hold(self, wait: Duration | None = None, lease: Duration | None = None, *, at_least: Duration | None = None, \
release: Optional[Literal['answered', 'behind']] = None) \
-> aiolock.HeldLock
        hold_count(self) -> int
        holder(self) -> aiolock.Holder | None
        locked(self) -> bool
        name: property
        release(self) -> None
        remaining(self) -> float | None
        statistics(self) -> aiolock.LockStatistics
        try_acquire(self, wait: Duration | None = 0, lease: Duration | None = None, *, at_least: Duration | None = \
None) -> aiolock.Lease | None
        try_lock(self, wait: Duration | None = 0, lease: Duration | None = None, *, at_least: Duration | None = None) \
-> aiolock.Lease | None
        """,
    "Lease": """
        check(self) -> None
        detach(self, keep: Duration) -> str
        given_back: attribute
        holds: property
        lease: attribute
        lost: property
        name: property
        release(self) -> None
        remaining: property
        renew(self, lease: Duration | None = None) -> None
        token: property
        watched: attribute
        """,
    "Loss": """
        is_set(self) -> bool
        """,
    "HeldLock": "",
    "Adoption": "",
    "AsyncOnce": """
        name: property
        run(self, function: Callable[~P, Awaitable[~R]], /, *args: P.args, **kwargs: P.kwargs) -> 'R | None'
        """,
    "Turn": """
        bypassed: attribute
        done: attribute
        failure: attribute
        lease: attribute
        result: property
        stale: attribute
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
        run(self, work: Callable[[aiolock.Term], Coroutine[Any, Any, object]]) -> None
        try_lead(self, wait: Duration | None = 0) -> aiolock.Term | None
        """,
    "Term": """
        check(self) -> None
        lease: attribute
        lost: property
        name: property
        run(self, *work: Coroutine[Any, Any, object]) -> None
        start(self, work: Coroutine[Any, Any, ~T]) -> 'asyncio.Task[T]'
        step_down(self) -> None
        token: property
        """,
    "AsyncMultiLock": """
        acquire(self, *, lease: Duration | None = None) -> aiolock.MultiLease
        force_release(self) -> bool
        held(self) -> bool
        hold(self, wait: Duration | None = None, lease: Duration | None = None, *, release: \
Optional[Literal['answered', 'behind']] = None) -> 'HeldMultiLock'
        hold_count(self) -> int
        holders(self) -> Mapping[str, Sequence[aiolock.Holder]]
        locked(self) -> bool
        name: property
        names: property
        release(self) -> None
        remaining(self) -> float | None
        statistics(self) -> aiolock.LockStatistics
        try_acquire(self, wait: Duration | None = 0, lease: Duration | None = None) -> aiolock.MultiLease | None
        try_lock(self, wait: Duration | None = 0, lease: Duration | None = None) -> aiolock.MultiLease | None
        """,
    "MultiLease": """
        check(self) -> None
        detach(self, keep: Duration) -> str
        given_back: property
        lease: property
        leases: property
        lost: property
        release(self) -> None
        remaining: property
        renew(self, lease: Duration | None = None) -> None
        tokens: property
        """,
    "MultiLoss": """
        is_set(self) -> bool
        """,
    "HeldMultiLock": "",
    "AsyncReadWriteLock": """
        force_release(self) -> bool
        holders(self) -> Sequence[aiolock.Holder]
        locked(self) -> bool
        name: property
        read: property
        statistics(self) -> aiolock.LockStatistics
        write: property
        """,
    "AsyncReadLock": HALF + "        holders(self) -> Sequence[aiolock.Holder]",
    "AsyncWriteLock": HALF + "        holder(self) -> aiolock.Holder | None",
    "AsyncSemaphore": """
        acquire(self, permits: int | None = None, *, lease: Duration | None = None) -> aiolock.Lease
        acquired(self) -> int
        add_permits(self, permits: int) -> None
        available(self) -> int
        force_release(self) -> bool
        hold(self, wait: Duration | None = None, lease: Duration | None = None, *, permits: int | None = None, \
release: Optional[Literal['answered', 'behind']] = None) -> \
'HeldSemaphore'
        holders(self) -> Sequence[aiolock.Holder]
        locked(self) -> bool
        name: property
        permits(self) -> int
        release(self, permit: aiolock.Lease | None = None) -> None
        renew(self, permit: aiolock.Lease, lease: Duration | None = None) -> None
        set_permits(self, permits: int) -> None
        statistics(self) -> aiolock.LockStatistics
        taking(self, permits: int) -> 'AsyncSemaphore'
        try_acquire(self, wait: Duration | None = 0, lease: Duration | None = None, *, permits: int | None = None) -> \
aiolock.Lease | None
        """,
    "HeldSemaphore": "",
    "AsyncCountingSemaphore": """
        acquire(self, permits: int | None = None) -> None
        add_permits(self, permits: int) -> None
        available(self) -> int
        drain(self) -> int
        hold(self, wait: Duration | None = None, *, permits: int | None = None) -> 'HeldCountingSemaphore'
        locked(self) -> bool
        name: property
        release(self, permits: int | None = None) -> None
        statistics(self) -> aiolock.LockStatistics
        taking(self, permits: int) -> 'AsyncCountingSemaphore'
        try_acquire(self, wait: Duration | None = 0, *, permits: int | None = None) -> bool
        try_set_permits(self, permits: int) -> bool
        """,
    "HeldCountingSemaphore": "",
    "AsyncCountDownLatch": """
        count(self) -> int
        count_down(self) -> None
        delete(self) -> bool
        name: property
        statistics(self) -> aiolock.LockStatistics
        try_set_count(self, count: int) -> bool
        wait(self, wait: Duration | None = None) -> bool
        """,
}

CONSTRUCTORS = {
    "LockClient": "(redis: 'Redis | RedisCluster', *, config: aiolock.LockConfig | None = None) -> None",
    "LockConfig": "(*, prefix: str = '', lease: Duration = 30.0, "
    "renew_interval: Duration | None = None, max_hold: Duration | None = None, "
    "max_stall: Duration | None = None, "
    "drift: Duration | None = None, "
    "token_retention: Duration = 3600.0, release_timeout: Duration = 5.0, "
    "release: Literal['answered', 'behind'] = 'answered', command_timeout: Duration = 5.0, "
    "replicas: Union[int, Literal['all'], NoneType] = None, "
    "replicas_timeout: Duration = 1.0, client_name: str | None = None, "
    "on_event: Callable[[aiolock.LockEvent], object] | None = None, "
    "telemetry: aiolock.Telemetry | None = None) -> None",
    "Holder": "(client: str, owner: str, holds: int, remaining: float, host: str | None = None, "
    "pid: int | None = None, client_name: str | None = None, detached: bool = False) -> None",
    "LockStatistics": "(held: int = 0, parked: int = 0, subscriptions: int = 0, renewals: int = 0, "
    "hand_offs: int = 0) -> None",
    "ClientStatistics": "(held: int = 0, parked: int = 0, subscriptions: int = 0, pending: int = 0, "
    "connections: int = 0, commands: int = 0, batches: int = 0, renewals: int = 0, losses: int = 0, "
    "hand_offs: int = 0, losses_behind: int = 0, renewals_by_thread: int = 0) -> None",
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
    "RenewalLate": f"({WHO}, late: float, remaining: float, trouble: str | None = None) -> None",
    "RenewedByThread": f"({WHO}, renewals: int, blocked: float) -> None",
    "Lost": f"({WHO}, reason: Literal['expired', 'taken', 'forced', 'unreachable', 'closed', 'orphaned', 'max_hold'], "
    "held: float, ran_out: bool, trouble: str | None = None, behind: bool = False) -> None",
    "Orphaned": f"({WHO}, holds: int, task: str, held: float) -> None",
    "HandedOff": f"({WHO}) -> None",
    "Bypassed": f"({WHO}, trouble: str) -> None",
}


def public_members(owner: type) -> Iterator[tuple[str, Any]]:
    for name in sorted(dir(owner)):
        if not name.startswith("_") and name not in dir(Exception):
            yield name, inspect.getattr_static(owner, name)


def shortened(signature: str) -> str:
    """The signature in the words of this file."""
    signature = signature.replace("float | datetime.timedelta", "Duration")
    return signature.replace("collections.abc.", "").replace("typing.", "")


def written(name: str, member: Any) -> str:
    """A member as MEMBERS has it."""
    if isinstance(member, property):
        return f"{name}: property"
    if isinstance(member, classmethod):
        return name + shortened(str(inspect.signature(member.__get__(None, object))))
    return name + shortened(str(_accepted(inspect.signature(member)))) if callable(member) else f"{name}: attribute"


def _accepted(signature: inspect.Signature) -> inspect.Signature:
    """The signature without the parameter for the words that a call refuses: see `_words`."""
    return signature.replace(parameters=[each for name, each in signature.parameters.items() if name != "unknown"])


def test_all_has_the_listed_names_and_is_sorted() -> None:
    assert aiolock.__all__ == NAMES == sorted(NAMES)


def test_nothing_else_is_public() -> None:
    modules = {name for name, value in vars(aiolock).items() if inspect.ismodule(value)}
    assert {name for name in vars(aiolock) if not name.startswith("_")} - modules == set(NAMES)


def test_the_members_of_the_classes() -> None:
    found = {f"{name}.{written(*member)}" for name in MEMBERS for member in public_members(getattr(aiolock, name))}
    expected = {f"{name}.{line.strip()}" for name, lines in MEMBERS.items() for line in lines.strip().splitlines()}
    assert (found - expected, expected - found) == (set(), set())


def signatures(names: Iterable[str]) -> dict[str, str]:
    """The signatures of these names, as Python 3.11 writes them."""
    found = {name: str(inspect.signature(getattr(aiolock, name))) for name in names}
    return {name: shortened(signature).replace("~P.", "P.") for name, signature in found.items()}


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
    waiting = {name for owner in owners for name, member in public_members(owner) if is_coroutine_function(member)}
    assert waiting == {
        *(
            "aclose",
            "acquire",
            "try_acquire",
            "try_lock",
            "release",
            "locked",
            "held",
            "hold_count",
            "remaining",
            "holder",
        ),
        *("detach", "force_release", "renew", "ping", "slot"),
    }


def test_every_class_is_documented() -> None:
    """The docstring is more than what dataclass writes."""
    bare = [each for each in CLASSES if not each.__doc__ or each.__doc__.startswith(f"{each.__name__}(")]
    assert bare == []


def test_no_error_about_arguments_names_a_class_that_users_do_not_know() -> None:
    named = {
        member.__qualname__.rpartition(".")[0]
        for owner in CLASSES
        if owner.__module__ == "aiolock"
        for _, member in public_members(owner)
        if inspect.isfunction(member)
    }
    assert named - {each.__name__ for each in CLASSES} == {"handle", "lock"}


def test_every_public_method_and_property_is_documented() -> None:
    bare = [
        f"{owner.__name__}.{name}"
        for owner in CLASSES
        for name, member in public_members(owner)
        if (callable(member) or isinstance(member, property | classmethod)) and not inspect.getdoc(member)
    ]
    assert bare == []


def test_raised_errors_are_documented() -> None:
    for method in (aiolock.AsyncRLock.acquire, aiolock.AsyncRLock.release, aiolock.Lease.release, aiolock.Lease.renew):
        text = inspect.getdoc(method) or ""
        assert ("Raises:" in text, "LeaseLostError" in text) == (True, True), method


def test_the_version_is_a_number() -> None:
    assert [part.isdigit() for part in aiolock.__version__.split(".")[:2]] == [True, True]


@pytest.mark.parametrize(
    "module",
    [aiolock, aiolock.blocking, aiolock.testing, aiolock.fastapi, aiolock.aiohttp, aiolock.opentelemetry],
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


# The house rule: `acquire()` has no `wait` and waits for ever, `try_acquire(wait=0)` asks once, and a primitive that is
# given back has `hold(wait=None)`, too.
ACQUIRED = [
    getattr(module, name)
    for module in (aiolock, aiolock.blocking)
    for name in module.__all__
    if hasattr(getattr(module, name), "acquire")
]
GIVEN_BACK = [each for each in ACQUIRED if hasattr(each, "release")]


def defaults(method: Any) -> dict[str, object]:
    """The parameters of *method* that it may be called without, and their defaults."""
    return {name: each.default for name, each in inspect.signature(method).parameters.items()}


def qualified(of: type) -> str:
    return f"{of.__module__}.{of.__name__}"


@pytest.mark.parametrize("primitive", ACQUIRED, ids=qualified)
def test_acquire_waits_for_ever_and_try_acquire_not_at_all(primitive: Any) -> None:
    assert "wait" not in defaults(primitive.acquire), "acquire() waits for ever"
    assert defaults(primitive.try_acquire)["wait"] == 0


@pytest.mark.parametrize("primitive", GIVEN_BACK, ids=qualified)
def test_every_primitive_that_is_given_back_has_the_same_verbs(primitive: Any) -> None:
    assert {"try_acquire", "hold", "locked", "statistics", "name"} <= set(dir(primitive))
    assert hasattr(primitive, "__aenter__") != hasattr(primitive, "__enter__")
    assert defaults(primitive.hold)["wait"] is None
    assert getattr(primitive, "try_lock", primitive.try_acquire) is primitive.try_acquire
    assert hasattr(primitive, "try_lock") != ("permits" in defaults(primitive.acquire))


def test_all_kinds_that_are_given_back_are_found() -> None:
    kinds = {"RLock", "FairLock", "ReadLock", "WriteLock", "MultiLock", "Semaphore", "CountingSemaphore"}
    assert {each.__name__.removeprefix("Async") for each in GIVEN_BACK} == kinds
    assert len(GIVEN_BACK) == 2 * len(kinds)


@pytest.mark.parametrize("of", [aiolock.LockClient.counting_semaphore, aiolock.AsyncCountingSemaphore])
@pytest.mark.parametrize("blocking", [False, True], ids=["async", "blocking"])
def test_the_first_sentence_about_the_counting_semaphore_warns_of_lost_permits(of: Any, blocking: bool) -> None:
    name = of.__name__.removeprefix("Async")
    owner = aiolock.blocking.LockClient if inspect.isfunction(of) else aiolock.blocking
    text = inspect.getdoc(getattr(owner, name) if blocking else of) or ""
    assert re.match(r"[^.]*loses (the permits|those) of a process that dies", text.replace("\n", " "))
