"""Every cause of a loss: the holder is told, cleans up, and does not harm the next holder."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import pytest
from redis.asyncio import Redis

from aiolock import LeaseLostError, LockClient, LossReason, NotALockError, NotHeldError
from tests.support.holding import ROLLBACK, Holder, client_behind, seize
from tests.support.observe import answered
from tests.support.proxy import Proxy

KEY = "job"


@dataclass
class Scene:
    redis: Redis
    proxy: Proxy
    locks: LockClient
    """The client behind the proxy."""
    others: LockClient
    """A client with a direct connection."""

    async def heal(self) -> None:
        """Let the client reach the server again, let all data arrive that was stuck, and wait until all is answered."""
        await self.proxy.heal()
        await answered(self.locks)


@pytest.fixture
def reason() -> LossReason:
    """The reason of a loss, in the tests that do not choose one."""
    return "expired"


@pytest.fixture
async def scene(redis: Redis, proxy: Proxy, other: LockClient, reason: LossReason) -> AsyncIterator[Scene]:
    """The holder learns of a loss by a renewal; if no renewal gets through, by the end of the lease, which is short."""
    async with client_behind(proxy, lease=0.9 if reason == "unreachable" else 30, renew_interval=0.3) as locks:
        yield Scene(redis, proxy, locks, other)


async def deleted(scene: Scene) -> None:
    await scene.redis.delete(KEY)


async def flushed(scene: Scene) -> None:
    await scene.redis.flushall()


async def expired_by_hand(scene: Scene) -> None:
    await scene.redis.pexpire(KEY, 1)


async def forced_by_its_own_client(scene: Scene) -> None:
    assert await scene.locks.lock(KEY).force_release()


async def forced_by_another_client(scene: Scene) -> None:
    assert await scene.others.lock(KEY).force_release()


async def deleted_and_taken_by_another_client(scene: Scene) -> None:
    await scene.redis.delete(KEY)
    await scene.others.lock(KEY, owner="thief").acquire()


async def seized(scene: Scene) -> None:
    await seize(scene.redis, KEY)


async def seized_by_redisson(scene: Scene) -> None:
    await seize(scene.redis, KEY, redisson=True)


async def overwritten(scene: Scene) -> None:
    await scene.redis.set(KEY, "not a lock")


async def black_holed(scene: Scene) -> None:
    scene.proxy.black_hole()


async def cut_off(scene: Scene) -> None:
    await scene.proxy.cut_off()


async def half_open(scene: Scene) -> None:
    scene.proxy.black_hole()
    scene.proxy.half_open(lambda _: True)


Cause = Callable[[Scene], Awaitable[None]]
CAUSES: dict[Cause, LossReason] = {
    deleted: "expired",
    flushed: "expired",
    expired_by_hand: "expired",
    forced_by_its_own_client: "forced",
    forced_by_another_client: "forced",
    deleted_and_taken_by_another_client: "taken",
    seized: "taken",
    seized_by_redisson: "taken",
    overwritten: "expired",
    black_holed: "unreachable",
    cut_off: "unreachable",
    half_open: "unreachable",
}
each_cause = pytest.mark.parametrize(
    ("cause", "reason"), [pytest.param(*each, id=each[0].__name__) for each in CAUSES.items()]
)


async def heir_of(scene: Scene) -> object:
    """The lock as its next owner has it; another client takes it if nobody has it."""
    try:
        await scene.others.lock(KEY, owner="heir").try_lock(wait=0 if await scene.redis.pttl(KEY) > 10_000 else 5)
    except NotALockError:
        return await scene.redis.get(KEY)
    return await scene.redis.hgetall(KEY)


async def lock_now(scene: Scene) -> object:
    return await (scene.redis.hgetall(KEY) if await scene.redis.type(KEY) == b"hash" else scene.redis.get(KEY))


@each_cause
async def test_a_scope_is_cancelled_once_rolls_back_and_harms_no_heir(
    scene: Scene, cause: Cause, reason: LossReason
) -> None:
    async with Holder(scene.locks.lock(KEY)) as holder:
        lease = holder.leases[0]
        await cause(scene)
        assert await asyncio.wait_for(lease.lost, 5) == reason
        error = await holder.lost()
        assert (error.name, error.token, error.reason) == (KEY, lease.token, reason)
        assert (holder.cancelled, holder.rolled_back, holder.uncancelled) == (1, ROLLBACK, True)

        heir = await heir_of(scene)
        await scene.heal()
        holder.go_on.set()
        await holder.task
        assert holder.after == [NotHeldError]
        await answered(scene.locks)
        assert heir
        assert await lock_now(scene) == heir
        assert scene.locks.statistics().losses == 1
        assert scene.locks.statistics().held == 0


@each_cause
async def test_without_a_scope_the_lease_tells_and_a_release_harms_no_heir(
    scene: Scene, cause: Cause, reason: LossReason
) -> None:
    lock = scene.locks.lock(KEY)
    lease = await lock.acquire()
    nested = await lock.acquire()
    await cause(scene)
    assert await asyncio.wait_for(lease.lost, 5) == reason
    assert lease.lost.is_set()
    assert (lease.remaining, lease.holds) == (0, 0)
    with pytest.raises(LeaseLostError) as checked:
        lease.check()
    assert (checked.value.name, checked.value.token, checked.value.reason) == (KEY, lease.token, reason)
    assert nested.lost.is_set()

    heir = await heir_of(scene)
    await scene.heal()
    for _ in range(2):
        with pytest.raises(LeaseLostError):
            await lock.release()
    with pytest.raises(NotHeldError):
        await lock.release()
    await answered(scene.locks)
    assert await lock_now(scene) == heir
