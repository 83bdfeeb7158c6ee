"""A loss is awaited in the loop of its client, or not at all."""

import asyncio
import threading

import pytest

from aiolock import ClientClosedError, LeaseLostError, LockClient


async def test_awaiting_a_loss_in_another_loop_is_refused_and_harms_nobody(locks: LockClient) -> None:
    lock = locks.lock("orders")
    told: list[BaseException] = []

    async with lock as lease:

        async def wait() -> None:
            await lease.lost

        def elsewhere() -> None:
            try:
                asyncio.run(wait())
            except ClientClosedError as error:
                told.append(error)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        await asyncio.to_thread(thread.join, 10)
        assert "another event loop" in str(told[0])
        assert not lease.lost.is_set()
    with pytest.raises(LeaseLostError):
        async with lock:
            await lock.force_release()
            await asyncio.sleep(10)
