"""AsyncCountDownLatch: wait until something has been counted down to zero."""

from typing import final

from aiolock._primitives.base import Named, taken_by_nobody
from aiolock._scripts import COUNT_DOWN, GRANTED, LATCH, SET_COUNT, Script, Want
from aiolock._types import Duration, whole_number


@final
class AsyncCountDownLatch(Named):
    """
    A distributed count-down latch; made by `LockClient.count_down_latch`.

    Somebody says what is to be counted down, others count, and whoever waits is let go at zero. Before that is said the
    count is zero. A handle without state of its own. Follows Redisson's ``RCountDownLatch``, with which it shares its
    layout in Redis.
    """

    __slots__ = ()

    async def try_set_count(self, count: int) -> bool:
        """
        Let there be so much to be counted down, if there is nothing yet; whether there was nothing.

        Waits for the server's answer, up to `LockConfig.command_timeout`; cancelling leaves it done or not done. Sent
        twice, it says the same.

        Raises:
            TypeError, ValueError: *count* is not a whole number above zero.
            NotALockError: the key is something else.
            BackendError: Redis failed.
            ClientClosedError: the client is closed, or belongs to another loop or process.
        """
        return await self._change(SET_COUNT, whole_number(count, "count", least=1))

    async def count_down(self) -> None:
        """
        Let the count be one less; at zero whoever waits is let go, everywhere. Of zero nothing is counted.

        Waits for the server's answer, up to `LockConfig.command_timeout`; cancelling leaves it done or not done. Sent
        twice, it counts once. Raises `NotALockError`, `BackendError` and `ClientClosedError` as `try_set_count`.
        """
        await self._change(COUNT_DOWN, 1)

    async def count(self) -> int:
        """
        What is still to be counted down, by Redis.

        Waits for the server's answer, up to `LockConfig.command_timeout`, and changes nothing; cancelling is harmless.
        Raises as `count_down`.
        """
        _, count, *_ = await self._sessions.open().inspector.ask(LATCH.acquire, self._keys, 1)
        return int(count)

    async def wait(self, timeout: Duration | None = None) -> bool:
        """
        Wait until the count is zero, at most *timeout* seconds (``None``: as long as it takes); whether it is.

        ``timeout=0`` asks Redis once. A message lets it go; without one it asks every five seconds. Who waits while the
        count becomes zero and is set anew at once may wait on: use another name for another round. Cancelling leaves
        nothing behind.

        Raises:
            TypeError, ValueError: *timeout* is not a number of seconds, or is below zero.
            NotALockError, BackendError, ClientClosedError: as `count_down`.
        """
        return await taken_by_nobody(self._sessions, Want(self._keys, LATCH), timeout, "timeout")

    async def delete(self) -> bool:
        """
        Let the count be zero, whatever it is; whether it was not. Whoever waits is let go.

        Redisson's ``delete`` leaves them waiting. Waits, is cancelled and raises as `count_down`. Sent twice, it ends
        no later latch, and says the same.
        """
        return await self._change(COUNT_DOWN, "")

    async def _change(self, script: Script, how: int | str) -> bool:
        status, *_ = await self._sessions.open().change(script, self._keys, how, self._keys.channel)
        return bool(status == GRANTED)
