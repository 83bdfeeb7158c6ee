"""A kept lock, a body that runs once, and leaders in a cluster: all keys of each are on one server."""

import asyncio

import pytest
from redis.asyncio import RedisCluster

from aiolock import LockClient
from aiolock._keys import LockKeys, old_key
from tests.support.observe import until
from tests.support.topologies import ClusterOf, ask

NAMES = ["report", "{shop}:report", "shop:{report}:7"]


@pytest.mark.parametrize("name", NAMES)
async def test_an_old_result_is_on_the_same_server(
    calm: ClusterOf, ours: LockClient, theirs: LockClient, name: str
) -> None:
    async def work() -> str:
        return "done"

    async def again() -> str:
        raise AssertionError("must not run")

    keys, owner = LockKeys.of_once(name, ""), calm.owner_of(name)
    await ours.once(name, keep=60, stale=60).run(work)
    assert ask(owner, "HGET", old_key(keys), "aiolock:outcome") == "sdone"
    ask(owner, "DEL", keys.lock)
    async with ours.once(name, keep=60, stale=60) as turn:
        assert turn
        assert await theirs.once(name, keep=60, stale=60).run(again) == "done"


@pytest.mark.parametrize("name", NAMES)
async def test_a_lock_is_kept_and_a_waiter_is_told(
    cluster: RedisCluster, ours: LockClient, theirs: LockClient, name: str
) -> None:
    async with ours.lock(name).hold(at_least=60):
        waiting = asyncio.create_task(theirs.lock(name, owner="waiter").acquire())
        await until(lambda: theirs.statistics().parked == 1, within=30)
    assert not await ours.lock(name).held()
    assert await theirs.lock(name).force_release()
    assert await waiting is not None


async def test_all_agree_on_the_slot_and_one_leads(ours: LockClient, theirs: LockClient) -> None:
    slots = [await client.slot("nightly", every=3600) for client in (ours, theirs)]
    assert slots[1].number - slots[0].number in {0, 1}
    async with ours.leader("scheduler") as term:
        holder = await theirs.leader("scheduler").holder()
        assert holder is not None
        assert term.lease.holds == holder.holds == 1
