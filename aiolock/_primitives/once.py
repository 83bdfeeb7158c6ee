"""AsyncOnce: a body that runs once per key in the fleet, and its outcome."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any, Literal, ParamSpec, TypeVar, cast, final

from aiolock._answers import answering
from aiolock._core.held import DoneError, Remains
from aiolock._core.lease import Lease
from aiolock._core.session import Sessions
from aiolock._errors import AioLockError, OnceFailedError
from aiolock._keys import LockKeys, old_key
from aiolock._primitives.base import Lock
from aiolock._primitives.entered import Entered
from aiolock._primitives.section import UNAVAILABLE, bypass, forgives
from aiolock._scripts import OLD, ONCE, SLOT, Want
from aiolock._types import (
    SHORTEST,
    Duration,
    OnUnavailable,
    begun,
    check_choice,
    check_function,
    lease_seconds,
    milliseconds,
    quoted,
    seconds,
    signed_seconds,
)

Failures = Literal["release", "remember"]
Result = str | bytes | None
# Seconds, or a function that gets the result of the body and returns seconds.
Keep = Duration | Callable[[Any], Duration]

# The limit of a result: a larger one would hold up other commands on the connection.
MOST_BYTES = 65_536
# Characters.
_MOST_OF_A_FAILURE = 1024
# The field of the outcome; the first letter of its value says what the rest is.
_OUTCOME = "aiolock:outcome"

P = ParamSpec("P")
R = TypeVar("R", bound=Result)


@final
class Turn:
    """
    The turn in ``async with locks.once(...) as turn:``; it is true for the caller that is to run the body, else false.

    The caller that runs the body may set *result*. All other callers read it there: it is ``None`` if the body set no
    result, or if the wait has ended.
    """

    __slots__ = ("_result", "bypassed", "done", "failure", "lease", "stale")

    def __init__(
        self, lease: Lease | None, outcome: bytes | None, *, stale: bool = False, bypassed: bool = False
    ) -> None:
        self.lease: Lease | None = lease
        """The lease under which this caller runs the body; ``None`` if it does not run the body, or runs it without."""
        self.stale: bool = stale
        """Whether the result is that of an earlier run, because another caller runs the body again at this moment."""
        self.bypassed: bool = bypassed
        """Whether Redis failed, and this caller runs the body without a lease (``on_unavailable="run"``)."""
        self.done: bool = outcome is not None
        """Whether the body has run, before or in this turn; false if the wait ended while another caller runs it."""
        kind, value = (b"", b"") if outcome is None else (outcome[:1], outcome[1:])
        self.failure: str | None = value.decode(errors="replace") if kind == b"f" else None
        """The failure, if it was remembered."""
        self._result: Result = value.decode() if kind == b"s" else value if kind == b"b" else None

    def __bool__(self) -> bool:
        return self.lease is not None or self.bypassed

    @property
    def result(self) -> Result:
        """
        The result of the body: a `str` or `bytes` of 64 KiB at most, or ``None``.

        Raises:
            TypeError, ValueError: you set another value.
            RuntimeError: you set it, and this caller does not run the body.
        """
        return self._result

    @result.setter
    def result(self, result: Result) -> None:
        if not self:
            raise RuntimeError("a result is set by the caller that runs the body of `once`: set it under `if turn:`")
        if result is not None and not isinstance(result, str | bytes):
            raise TypeError(f"a result must be a str, bytes or None, not {type(result).__name__}; json.dumps makes one")
        if result is not None and (size := len(_bytes_of(result))) > MOST_BYTES:
            raise ValueError(
                f"a result must be {MOST_BYTES} bytes at most, not {size}; store it elsewhere and return its name"
            )
        self._result = result

    def __repr__(self) -> str:
        state = "failed" if self.failure is not None else "done" if self.done else "to be run" if self else "skipped"
        return f"<Turn {state}>"

    def _outcome(self) -> bytes:
        """The result in the form in which it is remembered."""
        if self._result is None:
            return b"n"
        return (b"s" if isinstance(self._result, str) else b"b") + _bytes_of(self._result)


@final
@dataclass(frozen=True, slots=True)
class Slot:
    """A time slot, as `LockClient.slot` returns it: time is divided into slots of one length, by the server's clock."""

    name: str
    """The name of this slot: the name of the job and the number of the slot."""
    number: int
    """The number of slots since the epoch."""
    ends: float
    """The end of the slot, on the monotonic clock of this process."""

    @property
    def remaining(self) -> float:
        """Seconds until the end of the slot; 0 after the end."""
        return max(0.0, self.ends - monotonic())


@final
@answering
class AsyncOnce(Entered[Turn]):
    """
    A body that runs once per key in the fleet; made by `LockClient.once`.

    Tasks may share the handle. The body runs under a lock of its own, which the watchdog renews. If the lock is lost,
    the body is cancelled, once, `LeaseLostError` is raised, and no outcome is remembered.
    """

    __slots__ = ("_keep", "_lock", "_on_unavailable", "_remembers", "_stale", "_wait")

    def __init__(
        self,
        sessions: Sessions,
        *,
        keys: LockKeys,
        keep: Keep,
        wait: Duration | None,
        failures: Failures,
        stale: Duration | None,
        on_unavailable: OnUnavailable,
    ) -> None:
        super().__init__(sessions)
        check_choice(failures, Failures, "failures")
        check_choice(on_unavailable, OnUnavailable, "on_unavailable")
        self._keep = _checked(keep)
        self._wait = None if wait is None else seconds(wait, "wait", zero=True)
        self._stale = None if stale is None else lease_seconds(stale, "stale")
        self._remembers = failures == "remember"
        if self._remembers and (callable(self._keep) or stale is not None):
            raise ValueError(
                'failures="remember" needs a keep that is a duration, and no stale: a failure has no result for a keep '
                "function, and replaces the old result"
            )
        self._on_unavailable: OnUnavailable = on_unavailable
        # With remembered failures, the body of a dead process is not run again while `keep` lasts.
        at_least = 0.0 if callable(self._keep) or not self._remembers else self._keep
        self._lock = Lock(sessions, want=Want(keys, ONCE, at_least=at_least), named=None)

    @property
    def name(self) -> str:
        """The key that was given to `LockClient.once`."""
        return self._lock.name

    @property
    def _keys(self) -> LockKeys:
        return self._lock._keys

    async def run(self, function: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> "R | None":
        """
        Call *function*, unless it has run before; returns the result of this call, or of the earlier one.

        *function* returns a `str`, `bytes` or ``None``. While another caller runs it, this one waits, up to the *wait*
        of `LockClient.once`, and returns ``None`` if the wait ends. With *stale*, this caller gets an old result, if
        there is one, and does not wait. Cancelling the caller that runs *function* cancels *function*; a cancelled
        waiter leaves nothing behind.

        Raises:
            OnceFailedError: *function* failed elsewhere, and the failure is remembered.
            LeaseLostError: the lock was lost, *function* was cancelled, and nothing is remembered.
            TypeError: *function* cannot be called, or has returned something that cannot be awaited.
            TypeError, ValueError: the result cannot be remembered, or a *keep* function returned no duration; this
                counts as a failure of *function*.
            RuntimeError: this task or thread runs the same `once` already, and would wait for itself.
            BackendError: Redis failed; if *function* has run, it is not known whether its result is remembered.
            ReplicationError: fewer replicas than `LockConfig.replicas` acknowledged the grant, which was undone, or the
                result, which is remembered, but may be lost in a failover.
            ClientClosedError: the client is closed, or belongs to another loop or process.
            Exception: the exception of *function*, or of a *keep* function.
        """
        check_function(function, "function")
        async with self as turn:
            if turn:
                turn.result = await begun(function, *args, **kwargs)
        if turn.failure is not None:
            raise OnceFailedError(self.name, turn.failure)
        return cast("R | None", turn.result)

    def __repr__(self) -> str:
        return f"<AsyncOnce {quoted(self.name)}>"

    async def _begin(self) -> tuple[AbstractAsyncContextManager[Turn], Turn]:
        block = self._block()
        return block, await block.__aenter__()

    @asynccontextmanager
    async def _block(self) -> AsyncIterator[Turn]:
        turn = await self._ask()
        if turn.lease is None:
            yield turn
            turn.done = turn.done or turn.bypassed
            return
        try:
            async with turn.lease:
                try:
                    yield turn
                except BaseException as error:
                    self._note(turn, turn.lease, error)
                    raise
                self._note(turn, turn.lease, None)
        except UNAVAILABLE as failure:
            if not (turn.done and self._forgives(failure)):
                raise

    async def _ask(self) -> Turn:
        lock = self._lock
        if lock._sessions.open().leases.get(lock._keys, lock._owner()) is not None:
            raise RuntimeError(
                f"once {quoted(self.name)}: this task or thread runs its body already, and would wait for itself"
            )
        try:
            return await self._asked()
        except DoneError as done:
            return Turn(None, done.outcome)
        except UNAVAILABLE as error:
            if not bypass(self._on_unavailable, (lock,), error):
                raise
            return Turn(None, None, bypassed=True)

    async def _asked(self) -> Turn:
        """The turn, if the body has not run or may run again; raises `DoneError` if its outcome is remembered."""
        if self._stale is not None:
            lease = await self._lock._acquire(0, None)
            if lease is None and (old := await self._old()) is not None:
                return Turn(None, old, stale=True)
            if lease is not None or self._wait == 0:
                return Turn(lease, None)
        return Turn(await self._lock._acquire(self._wait, None), None)

    async def _old(self) -> bytes | None:
        """The result of the last run, if it may be served while another caller runs the body."""
        [old] = await self._sessions.open().commands.send(OLD, (old_key(self._keys),), ())
        return old

    def _note(self, turn: Turn, lease: Lease, error: BaseException | None) -> None:
        """
        Let the release of *lease* store the outcome, unless the body failed and failures are not remembered.

        After a loss of the lock there is no outcome. A release that arrives after the end of the lease stores it all
        the same, unless another caller was granted the lock in between.
        """
        lease._hold.notice_end()
        if lease._hold.loss not in (None, "closed"):
            return
        if error is None:
            keep, outcome = self._keep_of(turn.result), turn._outcome()
            turn.done = True
        elif self._remembers:
            keep = self._keep_of(None)
            outcome = f"f{_described(error)}"[:_MOST_OF_A_FAILURE].encode(errors="replace")
        else:
            return
        if keep < SHORTEST:
            return
        until = monotonic() + keep
        old = None if self._stale is None else (old_key(self._keys), until + self._stale)
        lease._hold.remains = Remains(_OUTCOME, outcome, until, late=True, old=old)

    def _keep_of(self, result: Result) -> float:
        """The seconds for which *result* is remembered; 0 if it is not."""
        if not callable(self._keep):
            return self._keep
        keep: object = self._keep(result)
        if asyncio.iscoroutine(keep):
            keep.close()
        what = f"the result of {self._keep!r}, which is the keep of once {quoted(self.name)},"
        return max(0.0, signed_seconds(keep, what))

    def _forgives(self, failure: AioLockError) -> bool:
        """Whether the *failure* of the release is logged and not raised, after the body has ended without an error."""
        return forgives(self._on_unavailable, (self._lock,), failure)


async def slot_of(sessions: Sessions, keys: LockKeys, every: Duration) -> Slot:
    """The current slot; see `LockClient.slot`."""
    length = lease_seconds(every, "every")
    number, left = await sessions.open().commands.send(SLOT, (keys.lock,), (milliseconds(length),))
    return Slot(f"{keys.name}:{number}", number, monotonic() + left)


def _described(error: BaseException) -> str:
    """The type and the text of *error*; a method of the user's makes the text, and may fail."""
    try:
        text = str(error)
    except Exception:
        text = "an error without a text, because its own __str__ failed"
    return f"{type(error).__name__}: {text}"


def _bytes_of(result: str | bytes) -> bytes:
    return result.encode() if isinstance(result, str) else result


def _checked(keep: Keep) -> float | Callable[[Any], Duration]:
    if not callable(keep):
        return lease_seconds(keep, "keep")
    if inspect.iscoroutinefunction(keep):
        raise TypeError(f"keep must be seconds, or a plain function of the result, not the coroutine function {keep!r}")
    return keep
