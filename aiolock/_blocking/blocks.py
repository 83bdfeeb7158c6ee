"""The block of a ``with``, which gives back the lease that it acquired; another thread may leave it, too."""

import asyncio
from abc import abstractmethod
from functools import partial
from types import TracebackType
from typing import Generic, NamedTuple, TypeVar

from aiolock._blocking.deputy import Job
from aiolock._blocking.runner import Runner, is_in_loop
from aiolock._blocking.verbs import A_co, Handle, Leavable, Untaken
from aiolock._core.owners import running_task
from aiolock._errors import ClientClosedError
from aiolock._words import shown_as

T_co = TypeVar("T_co", covariant=True)


class _Block(NamedTuple):
    """A block that was entered and not left."""

    task: "asyncio.Task[object]"
    """The task that acts for the thread that entered the block."""
    entered: Leavable


@shown_as("handle")
class Entered(Handle[A_co], Generic[A_co, T_co]):
    """A handle with blocks: several threads may enter it, and each thread several times."""

    __slots__ = ("_blocks",)

    def __init__(self, runner: Runner, *, face_of: A_co) -> None:
        super().__init__(runner, face_of=face_of)
        # In the order of their enters; only the loop uses this list.
        self._blocks: list[_Block] = []

    @abstractmethod
    async def _begin(self) -> tuple[Leavable, T_co]:
        """Begin a block, in the loop; returns the object that ends the block, and the value after ``as``."""

    def __enter__(self) -> T_co:
        job = Job(self._enter, self._undo)
        # As in `waited_for`, an interrupt may come at any step of Python.
        try:
            return self._runner.result_of(job)
        except BaseException:
            job.give_up()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        job: Job[None] | None = None
        try:
            job = Job(partial(self._exit, error))
            # If this thread has an event loop, Python destroys a generator with the block in it: the loop must not
            # wait.
            (self._runner.send if is_in_loop() else self._runner.result_of)(job)
        except ClientClosedError as closed:
            if closed.reason == "other process":
                # This process is a forked child, and the block is its parent's.
                return
            if error is None:
                self._refuse_lost_blocks()
                raise
            error.add_note(f"aiolock: {closed}")
        except BaseException:
            # After an interrupt, perhaps before the job was sent: send it again, because a job is done only once.
            if job is None or not job.result.is_set:
                self._runner.send(job or Job(partial(self._exit, error)))
            raise

    async def _enter(self) -> T_co:
        entered, given = await self._begin()
        # A thread that has ended has lost its locks.
        self._blocks = [each for each in self._blocks if not each.task.done()]
        self._blocks.append(_Block(running_task(), entered))
        return given

    async def _exit(self, error: BaseException | None) -> None:
        own = [each for each in self._blocks if each.task is running_task()]
        if not own and len(self._blocks) != 1:
            raise RuntimeError(f"{self!r}: this thread has entered no `with` of it: leave it there, or use `hold()`")
        block = (own or self._blocks)[-1]
        self._blocks.remove(block)
        await block.entered._leave(error)

    def _refuse_lost_blocks(self) -> None:
        """Raise if the lock of this thread's last block is lost, because the client was closed while the body ran."""
        own = [each for each in self._blocks if each.task is self._runner.task]
        for block in (own or self._blocks)[-1:]:
            block.entered._refuse_lost()

    async def _undo(self, given: object) -> None:
        """Leave the block, because an interrupt came before its body began."""
        await self._exit(Untaken())
