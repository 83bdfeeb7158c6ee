"""Mocks that take a handle as their specification can be entered, as the handle can be."""

from collections.abc import Callable
from typing import Any
from unittest.mock import AsyncMock, MagicMock, create_autospec

import pytest

from aiolock import LockClient


async def test_a_mock_of_a_handle_can_be_entered(locks: LockClient) -> None:
    several = await locks.multi("b", "c").acquire()
    handles = (
        locks.lock("a"),
        locks.read_write_lock("d").read,
        locks.multi("b", "c"),
        locks.semaphore("e", 1),
        locks.counting_semaphore("f", 1),
        locks.leader("g"),
        locks.once("h", keep=1),
        several,
        several.leases["b"],
    )
    mocks: tuple[Callable[[Any], Any], ...] = (
        lambda handle: MagicMock(spec=handle),
        lambda handle: AsyncMock(spec=handle),
        lambda handle: create_autospec(handle, instance=True),
    )
    for handle in handles:
        for mocked in mocks:
            async with mocked(handle):
                pass
    with pytest.raises(TypeError, match="unexpected keyword argument 'timeout'"):
        create_autospec(locks.lock("a"), instance=True).acquire(timeout=5)
    await several.release()
