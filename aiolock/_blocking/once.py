"""Work that runs once in the whole fleet, in threads."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast, final

from aiolock._blocking.blocks import Entered
from aiolock._blocking.functions import called, check_plain
from aiolock._blocking.lease import Lease
from aiolock._blocking.runner import Runner
from aiolock._blocking.verbs import Handle, Untaken
from aiolock._errors import OnceFailedError
from aiolock._primitives.once import AsyncOnce, Result
from aiolock._primitives.once import Turn as AsyncTurn
from aiolock._primitives.section import UNAVAILABLE

P = ParamSpec("P")
R = TypeVar("R", bound=Result)


@final
class Turn(Handle[AsyncTurn]):
    """
    The turn in ``with locks.once(...) as turn:``; it is true for the caller that is to run the body, else false.

    The caller that runs the body may set *result*. All other callers read it there: it is ``None`` if the body set no
    result, or if the wait has ended.
    """

    __slots__ = ("_lease", "_once")

    def __init__(self, runner: Runner, *, face_of: AsyncTurn, once: AsyncOnce) -> None:
        super().__init__(runner, face_of=face_of)
        self._once = once
        self._lease = None if face_of.lease is None else Lease(runner, face_of=face_of.lease)._in_block()

    def __bool__(self) -> bool:
        return bool(self._async)

    @property
    def lease(self) -> Lease | None:
        """The lease under which this caller runs the body; ``None`` if it does not run the body, or without a lease."""
        return self._lease

    @property
    def done(self) -> bool:
        """Whether the body has run, before or in this turn; false if the wait ended while another caller runs it."""
        return self._async.done

    @property
    def stale(self) -> bool:
        """Whether the result is that of an earlier run, because another caller runs the body again at this moment."""
        return self._async.stale

    @property
    def bypassed(self) -> bool:
        """Whether Redis failed, and this caller runs the body without a lease (``on_unavailable="run"``)."""
        return self._async.bypassed

    @property
    def failure(self) -> str | None:
        """The failure, if it was remembered."""
        return self._async.failure

    @property
    def result(self) -> Result:
        """
        The result of the body: a `str` or `bytes` of 64 KiB at most, or ``None``.

        Raises:
            TypeError, ValueError: you set another value.
        """
        return self._async.result

    @result.setter
    def result(self, result: Result) -> None:
        self._async.result = result

    def _refuse_lost(self) -> None:
        if self._lease is not None:
            self._lease._refuse_lost()

    async def _leave(self, error: BaseException | None) -> None:
        if self._lease is None:
            self._async.done = self._async.done or (self._async.bypassed and error is None)
            return
        if isinstance(error, Untaken):
            # The body has not begun, so that another caller may run it at once.
            self._lease._async._hold.remains = None
        else:
            try:
                self._once._note(self._async, self._lease._async, error)
            except Exception as failure:
                await self._lease._leave(failure)
                raise
        try:
            await self._lease._leave(error)
        except UNAVAILABLE as failure:
            if not self._once._forgives(failure):
                raise


@final
class Once(Entered[AsyncOnce, Turn]):
    """
    A body that runs once per key in the fleet; made by `LockClient.once`. See `AsyncOnce`.

    If the lock is lost while the body runs, the block raises `LeaseLostError` at its end, and nothing is remembered.
    """

    __slots__ = ()

    @property
    def name(self) -> str:
        """The key that was given to `LockClient.once`."""
        return self._async.name

    def run(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> "R | None":
        """Call *function*, unless it has run before; returns its result. See `AsyncOnce.run`."""
        check_plain(function, "what runs once")
        with self as turn:
            if turn:
                turn.result = called(function, *args, **kwargs)
        if turn.failure is not None:
            raise OnceFailedError(self.name, turn.failure)
        return cast("R | None", turn.result)

    async def _begin(self) -> tuple[Turn, Turn]:
        turn = Turn(self._runner, face_of=await self._async._ask(), once=self._async)
        return turn, turn
