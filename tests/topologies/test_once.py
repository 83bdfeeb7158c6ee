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
async def test_late_comers_of_all_clients_get_the_result(
    calm: ClusterOf, ours: LockClient, theirs: LockClient, name: str
) -> None:
    may_end, runs = asyncio.Event(), 0

    async def work() -> str:
        nonlocal runs
        runs += 1
        await may_end.wait()
        return "done"

    running = asyncio.create_task(ours.once(name, keep=60).run(work))
    await until(lambda: runs == 1, within=30)
    waiting = [asyncio.create_task(theirs.once(name, keep=60).run(work)) for _ in range(3)]
    channel, owner = LockKeys.of_once(name, "").channel, calm.owner_of(name)
    await until(lambda: channel in ask(owner, "PUBSUB", "SHARDCHANNELS"), within=30)
    may_end.set()
    assert set(await asyncio.gather(running, *waiting)) == {"done"}
    assert runs == 1
    assert [ask(owner, "EXISTS", key) for key in LockKeys.of_once(name, "").all] == [1, 1]


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
