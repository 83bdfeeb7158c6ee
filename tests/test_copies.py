"""Objects of one process say in words that they cannot be copied or pickled; a handle has nothing of its own."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from redis.asyncio import Redis

from aiolock import LockClient

CANNOT = "cannot be copied or pickled"


def refused(copies: Callable[[Any], object], what: object) -> bool:
    with pytest.raises(TypeError, match=CANNOT):
        copies(what)
    return True


@pytest.mark.parametrize("copies", [copy.copy, copy.deepcopy, pickle.dumps])
async def test_a_lease_cannot_be_copied(locks: LockClient, copies: Callable[[Any], object]) -> None:
    async with locks.leader("a") as term, locks.multi("b", "c") as several:
        assert refused(copies, term)
        for lease in (term.lease, *several.leases.values()):
            assert refused(copies, lease)
    held = locks.lock("a").hold()
    assert refused(copies, held)
    async with held:
        assert refused(copies, held)


@pytest.mark.parametrize("copies", [copy.deepcopy, pickle.dumps])
async def test_an_object_that_refers_to_a_client_cannot_be_copied(
    redis: Redis, copies: Callable[[Any], object]
) -> None:
    async def look(locks: LockClient) -> None:
        made = (locks, locks.lock("a"), locks.multi("b", "c"), locks.once("d", keep=1), locks.leader("e"))
        for each in made:
            assert refused(copies, each)

    locks = LockClient(redis)
    # A copy of a client that has not started would be another client.
    await look(locks)
    async with locks:
        await look(locks)
        lease = await locks.lock("a").acquire()
        assert refused(copies, lease.lost)
        await lease.release()
        assert refused(copies, lease.lost)


async def test_a_copied_handle_is_the_same_lock_of_the_same_owner(locks: LockClient) -> None:
    lock = locks.lock("a")
    async with lock, copy.copy(lock) as lease:
        assert lease.holds == 2
