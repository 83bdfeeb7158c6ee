"""AsyncOnce: a body that runs once per key in the fleet, and what it came to."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Literal, ParamSpec, TypeVar, cast, final

from aiolock._core.hold import DoneError, Remains
from aiolock._core.lease import Lease
from aiolock._core.session import Sessions
from aiolock._errors import OnceFailedError
from aiolock._keys import LockKeys
from aiolock._primitives.entered import Entered
from aiolock._primitives.reentrant import Reentrant
from aiolock._scripts import ONCE, SLOT, Want
from aiolock._types import Duration, lease_seconds, milliseconds, seconds

Failures = Literal["release", "remember"]
Result = str | bytes | None

MOST_BYTES = 65_536  # Of a result: one that is large would keep all others from the server.
_MOST_OF_A_FAILURE = 1024  # Characters.
_OUTCOME = "aiolock:outcome"  # The field; its first letter says what the others are.

P = ParamSpec("P")
R = TypeVar("R", bound=Result)


@final
class Turn:
    """
    What ``async with locks.once(...) as turn:`` gives: true for the one who is to run the body, else false.

    Who is to run it sets *result*, if there is one that others are to get. Who is not finds there what was remembered;
    ``None`` if nothing was, or if the wait has ended.
    """

    __slots__ = ("_result", "done", "failure", "lease")

    def __init__(self, lease: Lease | None, outcome: bytes | None) -> None:
        self.lease: Lease | None = lease
        """The lease under which the body runs; ``None`` where it is not to be run."""
        self.done: bool = outcome is not None
        """Whether it was run before, and has ended; false also when somebody runs it still, and the wait has ended."""
        kind, value = (b"", b"") if outcome is None else (outcome[:1], outcome[1:])
        self.failure: str | None = value.decode(errors="replace") if kind == b"f" else None
        """What it failed with, if that was remembered."""
        self._result: Result = value.decode() if kind == b"s" else value if kind == b"b" else None

    def __bool__(self) -> bool:
        return self.lease is not None

    @property
    def result(self) -> Result:
        """
        What the body came to: a `str` or `bytes` of 64 KiB at most, or ``None``.

        Raises:
            TypeError, ValueError: when it is set to something else.
        """
        return self._result

    @result.setter
    def result(self, result: Result) -> None:
        if result is not None and not isinstance(result, str | bytes):
            raise TypeError(f"a result must be a str, bytes or None, not {type(result).__name__}; json.dumps makes one")
        if result is not None and (size := len(_bytes_of(result))) > MOST_BYTES:
            raise ValueError(f"a result must be {MOST_BYTES} bytes at most, not {size}; return the name of where it is")
        self._result = result

    def __repr__(self) -> str:
        state = "to be run" if self else "failed" if self.failure is not None else "done" if self.done else "skipped"
        return f"<Turn {state}>"

    def _outcome(self) -> bytes:
        """As it is remembered."""
        if self._result is None:
            return b"n"
        return (b"s" if isinstance(self._result, str) else b"b") + _bytes_of(self._result)


@final
@dataclass(frozen=True, slots=True)
class Slot:
    """One of the equal parts of time that `LockClient.slot` tells, by the clock of the server."""

    name: str
    """Its own name: that of the job and the number of the slot."""
    number: int
    """How many slots there were since the epoch."""
    ends: float
    """When it is over, on the monotonic clock of this process."""

    @property
    def remaining(self) -> float:
        """Seconds until it is over; 0 when it is."""
        return max(0.0, self.ends - monotonic())


@final
class AsyncOnce(Entered[Turn]):
    """
    A body that runs once per key in the fleet; made by `LockClient.once`.

    A handle that may be shared by tasks. The body is run under a lock of its own, which the watchdog renews. When the
    lock is lost the body is cancelled, once, `LeaseLostError` raised, and nothing of it remembered.
    """

    __slots__ = ("_keep", "_lock", "_remembers", "_wait")

    def __init__(
        self, sessions: Sessions, keys: LockKeys, keep: Duration, wait: Duration | None, failures: Failures
    ) -> None:
        super().__init__()
        if failures not in ("release", "remember"):
            raise ValueError(f'failures must be "release" or "remember", not {failures!r}')
        self._keep = lease_seconds(keep, "keep")
        self._wait = None if wait is None else seconds(wait, "wait", zero=True)
        self._remembers = failures == "remember"
        # Where failures are remembered, nobody else runs the body while `keep` lasts though its process died.
        self._lock = Reentrant(sessions, Want(keys, ONCE, at_least=self._keep if self._remembers else 0.0), None)

    @property
    def name(self) -> str:
        """The key that it was made with."""
        return self._lock.name

    async def run(self, function: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> "R | None":
        """
        Call *function*, unless that was done; what it returned, here or there.

        It returns a `str`, `bytes` or ``None``. While another runs it, this waits, as long as `LockClient.once` was
        told; ``None`` when the wait ends. Cancelling who runs it cancels the body; who waits leaves nothing behind.

        Raises:
            OnceFailedError: it failed elsewhere, and that is remembered.
            LeaseLostError: the lock was lost, the body cancelled, and nothing is remembered.
            TypeError, ValueError: it returned what cannot be remembered, and so it failed.
            RuntimeError: it is run by this task already, which would wait for itself.
            BackendError: Redis failed; if the body has run, whether that is remembered is not known.
            ClientClosedError: the client is closed, or belongs to another loop or process.
            Exception: what *function* raised.
        """
        async with self as turn:
            if turn:
                turn.result = await function(*args, **kwargs)
        if turn.failure is not None:
            raise OnceFailedError(self.name, turn.failure)
        return cast("R | None", turn.result)

    def __repr__(self) -> str:
        return f"<AsyncOnce {self.name!r}>"

    async def _begin(self) -> tuple[AbstractAsyncContextManager[Turn], Turn]:
        block = self._block()
        return block, await block.__aenter__()

    @asynccontextmanager
    async def _block(self) -> AsyncIterator[Turn]:
        turn = await self._ask()
        if turn.lease is None:
            yield turn
            return
        async with turn.lease:
            try:
                yield turn
            except BaseException as error:
                if self._remembers:
                    failure = f"f{type(error).__name__}: {error}"[:_MOST_OF_A_FAILURE]
                    self._remember(turn.lease, failure.encode(errors="replace"))
                raise
            self._remember(turn.lease, turn._outcome())

    async def _ask(self) -> Turn:
        lock = self._lock
        if lock._sessions.open().leases.get(lock._keys, lock._owner()) is not None:
            raise RuntimeError(f"once {self.name!r}: this task runs it already, and would wait for itself")
        try:
            return Turn(await lock._acquire(self._wait, None), None)
        except DoneError as done:
            return Turn(None, done.outcome)

    def _remember(self, lease: Lease, outcome: bytes) -> None:
        """Have the release say what it came to; if the lock is lost there is none."""
        lease._hold.remains = Remains(_OUTCOME, outcome, monotonic() + self._keep)


async def slot_of(sessions: Sessions, keys: LockKeys, every: Duration) -> Slot:
    """The slot that it is now; as `LockClient.slot`."""
    length = lease_seconds(every, "every")
    number, left = await sessions.open().commands.send(SLOT, (keys.lock,), (milliseconds(length),))
    return Slot(f"{keys.name}:{number}", number, monotonic() + left / 1000)


def _bytes_of(result: str | bytes) -> bytes:
    return result.encode() if isinstance(result, str) else result
