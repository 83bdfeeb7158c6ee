"""The leases of threads. A loss cannot end a thread, so its body has to check, or to register a callback."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, Generic, Self, TypeVar, final

from aiolock._answers import NoCondition
from aiolock._blocking.blocks import Entered
from aiolock._blocking.deputy import Job
from aiolock._blocking.functions import check_plain
from aiolock._blocking.runner import Runner
from aiolock._blocking.verbs import Handle, verb
from aiolock._core.held import Body
from aiolock._core.lease import Lease as AsyncLease
from aiolock._core.lease import Loss as AsyncLoss
from aiolock._errors import ClientClosedError, LossReason, beside
from aiolock._helpers.together import Begun, all_of
from aiolock._log import log
from aiolock._primitives.multi.lease import MultiLease as AsyncMultiLease
from aiolock._primitives.multi.lease import MultiLoss as AsyncMultiLoss
from aiolock._types import BlockRelease, Duration, seconds

A = TypeVar("A", bound=AsyncLease | AsyncMultiLease)
S = TypeVar("S", bound=AsyncLoss | AsyncMultiLoss)
T_co = TypeVar("T_co", covariant=True)


async def _until_lost(loss: AsyncLoss | AsyncMultiLoss, wait: Duration | None = None) -> LossReason | None:
    """
    Wait until the lock is lost, and return the reason; ``None`` if it is not lost after *wait* seconds.

    A *wait* of ``None`` has no limit.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(None if wait is None else seconds(wait, "wait", zero=True)):
            return await loss
    return None


class _Loss(NoCondition, Handle[S]):
    __slots__ = ()

    def is_set(self) -> bool:
        """Whether the lock is lost, by the clock, too: a pause of the process hides no loss."""
        return self._async.is_set()

    wait: Final = verb(_until_lost)


@final
class Loss(_Loss[AsyncLoss]):
    """Whether a lease is lost: call `is_set`, or `wait`."""

    __slots__ = ()


@final
class MultiLoss(_Loss[AsyncMultiLoss]):
    """Whether any of several leases is lost: call `is_set`, or `wait`."""

    __slots__ = ()


class _LossCallback(Body):
    """A body without a task, which calls a function when its hold is lost; closing does not wait for it."""

    def __init__(self, lease: AsyncLease, tell: "_Callback") -> None:
        self.lease: AsyncLease = lease
        self._tell = tell

    @property
    def is_needed(self) -> bool:
        """Whether the lease was not given back."""
        return not self.lease.given_back

    def cancel_if_lost(self) -> None:
        """Call the function, because the lock is lost."""
        loss = self.lease._hold.loss
        if loss is not None and self.is_needed:
            self._tell(loss)


class _Callback:
    """A function of the user, which is called once, in a thread of its own, so that it does not block the loop."""

    def __init__(self, function: Callable[[LossReason], object]) -> None:
        self._function: Callable[[LossReason], object] | None = function

    def __call__(self, reason: LossReason) -> None:
        function, self._function = self._function, None
        if function is not None:
            try:
                threading.Thread(target=function, args=(reason,), name="aiolock loss", daemon=True).start()
            except RuntimeError as error:
                # At the end of the program no thread can be started, and nobody needs to be told.
                if threading.main_thread().is_alive():
                    log.error("lock lost: %s; the callback of `on_loss` was not called: %s", reason, error)


class _Leased(Entered[A, T_co], Generic[A, T_co]):
    """The common part of the leases of one lock and of several."""

    __slots__ = ("_release",)

    def __init__(self, runner: Runner, *, face_of: A) -> None:
        super().__init__(runner, face_of=face_of)
        # The `release` of its block.
        self._release: BlockRelease | None = None

    @property
    def lease(self) -> float:
        """Seconds: the lease that the acquire asked for, or the watchdog's."""
        return self._async.lease

    @property
    def remaining(self) -> float:
        """Seconds until the lease counts as ended, unless it is renewed; 0 if it is lost or given back."""
        return self._async.remaining

    @property
    def given_back(self) -> bool:
        """Whether the lease was given back."""
        return self._async.given_back

    def check(self) -> None:
        """
        Raise if the lock is no longer held; cheap, no I/O: call it before each step that must not be done twice.

        Raises:
            LeaseLostError: the lock is lost, by the clock or by an answer of the server.
            NotHeldError: this lease was given back.
            ClientClosedError: this is a forked child: the lock belongs to the parent.
        """
        self._async.check()

    def on_loss(self, function: Callable[[LossReason], object]) -> None:
        """
        Register *function*, which is called with the reason when the lock is lost, once, in a thread of its own.

        It is called at once if the lock is lost already, and never after the lease was given back. It can end what the
        body waits for, such as a query. `threading.excepthook` gets its exceptions.
        """
        check_plain(function, "the callback")
        callback = _Callback(function)
        try:
            self._runner.result_of(Job(partial(self._tell_loss, callback)))
        except ClientClosedError as closed:
            if closed.reason != "closed":
                raise
            held = [lease._hold for lease in self._parts() if not lease.given_back]
            reason = next((hold.loss for hold in held if hold.loss is not None), None)
            if reason is not None:
                callback(reason)

    async def _tell_loss(self, callback: _Callback) -> None:
        for lease in self._parts():
            watch, hold = _LossCallback(lease, callback), lease._hold
            # The hold may go on after many of its leases.
            hold.bodies[:] = [each for each in hold.bodies if not isinstance(each, _LossCallback) or each.is_needed]
            hold.bodies.append(watch)
            hold.notice_end()
            watch.cancel_if_lost()

    async def _begin(self) -> tuple[Self, Any]:
        for lease in self._parts():
            lease._refuse_own_block()
            lease._refuse_block()
        return self._in_block(), self

    def _in_block(self, release: BlockRelease | None = None) -> Self:
        """Note that a block will give the lease back, so that a release by the handle must not."""
        self._release = release
        for lease in self._parts():
            lease._scoped = True
        return self

    async def _leave(self, error: BaseException | None) -> None:
        detached = [lease._detached for lease in self._parts() if lease._detached is not None]
        if detached and error is not None:
            _ = await all_of([Begun(each.free_beside(error)) for each in detached])
        held = [lease for lease in reversed(self._parts()) if lease._detached is None]
        with beside(error):
            await all_of([Begun(self._give_back(lease)) for lease in held])

    def _give_back(self, lease: AsyncLease) -> Coroutine[Any, Any, None]:
        """Give *lease* back, as the end of an asynchronous block does."""
        behind = lease._session.blocks.leaves_behind(lease._hold, self._release)
        return lease._hold.give_back(lease, behind=behind)

    def _parts(self) -> Sequence[AsyncLease]:
        raise NotImplementedError

    def _refuse_lost(self) -> None:
        for lease in self._parts():
            if lease._hold.over:
                raise lease._hold.error()


async def _taken_back(ticket: str, lease: AsyncLease | AsyncMultiLease, keep: Duration) -> None:
    """Free the locks of *ticket*, because an interrupt came before the thread got the ticket."""
    for each in lease._leases if isinstance(lease, AsyncMultiLease) else (lease,):
        if each._detached is not None:
            _ = each._detached.take_back()


@final
class Lease(_Leased[AsyncLease, "Lease"]):
    """
    One hold of a lock, as `RLock.acquire` and similar methods return it.

    You may pass it to other threads; the hold still belongs to the thread that acquired it, and ends with that thread.
    ``with lease:`` gives the hold back at its end. A loss cannot end the body of a thread: let the body call `check`
    before each step that must not be done twice, or let `on_loss` end what the body waits for; and send the `token`
    with each write.
    """

    __slots__ = ()

    release: Final = verb(AsyncLease.release)
    renew: Final = verb(AsyncLease.renew)
    detach: Final = verb(AsyncLease.detach, _taken_back)

    @property
    def name(self) -> str:
        """The name of the lock."""
        return self._async.name

    @property
    def token(self) -> int:
        """The fencing token: greater than that of every earlier grant of this name."""
        return self._async.token

    @property
    def holds(self) -> int:
        """The hold count of the owner, as far as this client knows; 0 if the lock is lost or the lease given back."""
        return self._async.holds

    @property
    def watched(self) -> bool:
        """Whether the watchdog renews it: true if the acquire asked for no lease."""
        return self._async.watched

    @property
    def lost(self) -> Loss:
        """Whether the lock is lost: ``lease.lost.is_set()``, ``lease.lost.wait(5)``."""
        return Loss(self._runner, face_of=self._async.lost)

    def _parts(self) -> Sequence[AsyncLease]:
        return (self._async,)


@final
class MultiLease(_Leased[AsyncMultiLease, "MultiLease"]):
    """One hold of each of several locks, as `MultiLock.acquire` and similar methods return it; see `Lease`."""

    __slots__ = ()

    release: Final = verb(AsyncMultiLease.release)
    renew: Final = verb(AsyncMultiLease.renew)
    detach: Final = verb(AsyncMultiLease.detach, _taken_back)

    @property
    def leases(self) -> Mapping[str, Lease]:
        """The lease of each lock, by its name."""
        return {name: Lease(self._runner, face_of=lease) for name, lease in self._async.leases.items()}

    @property
    def tokens(self) -> Mapping[str, int]:
        """The fencing token of each lock, by its name; see `Lease.token`."""
        return self._async.tokens

    @property
    def lost(self) -> MultiLoss:
        """Whether any of the locks is lost; see `Lease.lost`."""
        return MultiLoss(self._runner, face_of=self._async.lost)

    def _parts(self) -> Sequence[AsyncLease]:
        return self._async._leases


def lease_of(runner: Runner, *, face_of: AsyncLease | AsyncMultiLease) -> Lease | MultiLease:
    """The blocking lease for the asynchronous one."""
    if isinstance(face_of, AsyncMultiLease):
        return MultiLease(runner, face_of=face_of)
    return Lease(runner, face_of=face_of)
