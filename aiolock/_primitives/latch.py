"""AsyncCountDownLatch: waits until a count has reached zero."""

from typing import final

from aiolock._answers import answering
from aiolock._primitives.named import Named, acquire_without_owner
from aiolock._scripts import COUNT_DOWN, LATCH, SET_COUNT, WAIT, Script, Want
from aiolock._scripts.replies import Changed, Refused
from aiolock._types import Duration, whole_number


@final
@answering
class AsyncCountDownLatch(Named):
    """
    A distributed count-down latch; made by `LockClient.count_down_latch`.

    One task sets the count, others count down, and all waiters go on at zero. The count is zero before a task sets it.
    The handle has no state of its own. The latch follows Redisson's ``RCountDownLatch``, and has the same layout in
    Redis.
    """

    __slots__ = ()

    async def try_set_count(self, count: int) -> bool:
        """
        Set the count, if it is zero; returns whether the count was set.

        Waits for the server's answer, up to `LockConfig.command_timeout`; a cancelled call may have set the count or
        not. A command that is sent twice has the same result.

        Raises:
            TypeError, ValueError: *count* is not a whole number above zero.
            NotALockError: the key is not a count.
            BackendError: Redis failed.
            ClientClosedError: the client is closed, or belongs to another loop or process.
        """
        return await self._change(SET_COUNT, whole_number(count, "count", least=1))

    async def count_down(self) -> None:
        """
        Lower the count by one; at zero all waiters go on, in all processes. A count of zero stays zero.

        Waits for the server's answer, up to `LockConfig.command_timeout`; a cancelled call may have counted or not. A
        command that is sent twice counts once. Raises `NotALockError`, `BackendError` and `ClientClosedError` like
        `try_set_count`.
        """
        await self._change(COUNT_DOWN, 1)

    async def count(self) -> int:
        """
        The count, according to Redis.

        Waits for the server's answer, up to `LockConfig.command_timeout`, and changes nothing; cancelling is harmless.
        Raises like `count_down`.
        """
        answer = await self._sessions.open().commands.ask(WAIT, self._keys, 1)
        return answer.count if isinstance(answer, Refused) else 0

    async def wait(self, wait: Duration | None = None) -> bool:
        """
        Wait until the count is zero, at most *wait* seconds (``None``: no limit); returns whether it is zero.

        ``wait=0`` asks Redis once. A message ends the wait; if none comes, `wait` asks every five seconds. If the count
        becomes zero and is set again at once, a waiter may miss the zero: use another name for another round.
        Cancelling leaves nothing behind.

        Raises:
            TypeError, ValueError: *wait* is not a number of seconds, or is below zero.
            NotALockError, BackendError, ClientClosedError: as in `count_down`.
        """
        return await acquire_without_owner(self._sessions, Want(self._keys, LATCH), wait)

    async def delete(self) -> bool:
        """
        Set the count to zero, so that all waiters go on; returns whether the count was above zero.

        Redisson's ``delete`` leaves the waiters waiting. Waiting, cancellation and errors are as in `count_down`. A
        command that is sent twice has the same result, and does not end a count that was set in between.
        """
        return await self._change(COUNT_DOWN, "")

    async def _change(self, script: Script[Changed], how: int | str) -> bool:
        return await self._sessions.open().change(script, self._keys, how, self._keys.channel) is not None
