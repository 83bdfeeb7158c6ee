"""The calls that a fault may hit, and everything that a test sees of one, to compare it with an undisturbed call."""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from redis.asyncio import Redis, RedisCluster

from aiolock import AioLockError, AsyncRLock, Lease, LeaseLostError, LockClient, LockConfig
from aiolock._events import LockEvent, RenewalLate, Renewed
from aiolock._scripts import ACQUIRE, FORCE_RELEASE, LOCK, RELEASE, RELEASE_CLEAN, RENEW, Script
from tests.support.observe import answered, until
from tests.support.proxy import Proxy, Rule

# Three attempts, one every two seconds: a busy machine has an answer by then.
COMMAND_TIMEOUT = 6.0
# No command sets this TTL, so that another TTL shows that a command has touched it.
SHORTENED = 5000


@dataclass
class Stage:
    """A lock, the client under test, another client that no fault hits, and a plain connection for a look."""

    redis: Redis | RedisCluster
    client: LockClient
    other: LockClient
    lock: AsyncRLock
    events: list[LockEvent] = field(default_factory=list)
    leases: list[Lease] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.lock.name

    async def answered(self) -> None:
        """Return when the client waits for no reply."""
        await answered(self.client)

    async def is_held(self) -> bool:
        """Whether the key is there."""
        return bool(await self.redis.exists(self.name))

    async def fields(self) -> dict[str, str]:
        """The fields of the lock on the server; none if the key is no lock."""
        if await self.redis.type(self.name) != b"hash":
            return {}
        found: dict[bytes, bytes] = await self.redis.hgetall(self.name)  # type: ignore[assignment]
        return {key.decode(): value.decode() for key, value in found.items()}

    async def holds(self) -> int:
        """The hold count on the server, of any holder."""
        return sum(int(value) for key, value in (await self.fields()).items() if not key.startswith("aiolock:"))


async def _one_more(stage: Stage) -> Lease:
    stage.leases.append(await stage.lock.acquire())
    return stage.leases[-1]


async def _try(stage: Stage) -> Lease | None:
    lease = await stage.lock.try_lock()
    stage.leases.extend([lease] if lease else [])
    return lease


async def _release_lock(stage: Stage) -> None:
    stage.leases.pop()
    await stage.lock.release()


async def _release_lease(stage: Stage) -> None:
    await stage.leases.pop().release()


async def _renew(stage: Stage) -> None:
    await stage.leases[-1].renew(60)


async def _be_renewed(stage: Stage) -> None:
    # One renewal may be past the fault already.
    wanted = stage.lock.statistics().renewals + 2
    await until(lambda: stage.lock.statistics().renewals >= wanted)


async def _force(stage: Stage) -> bool:
    return await stage.lock.force_release()


async def _nothing(stage: Stage) -> None:
    pass


async def _one_hold(stage: Stage) -> None:
    await _one_more(stage)


async def _renewed_hold(stage: Stage) -> None:
    lease = await _one_more(stage)
    await lease.renew()


async def _two_holds(stage: Stage) -> None:
    await _one_more(stage)
    await _one_more(stage)


async def _lost(stage: Stage) -> None:
    await _one_more(stage)
    await stage.redis.delete(stage.name)


async def _taken(stage: Stage) -> None:
    await _lost(stage)
    await _held_by_another(stage)


async def _held_by_another(stage: Stage) -> None:
    await stage.other.lock(stage.name, owner="another").acquire()


# By the name of the lock.
_tickets: dict[str, str] = {}


async def _detached(stage: Stage) -> None:
    lease = await stage.other.lock(stage.name, owner="another").acquire()
    _tickets[stage.name] = await lease.detach(60)


async def _adopted_by_another(stage: Stage) -> None:
    await _detached(stage)
    await stage.other.adopt(_tickets[stage.name], owner="another")


async def _adopt(stage: Stage) -> Lease:
    lease = await stage.client.adopt(_tickets[stage.name])
    stage.leases.append(lease)
    return lease


async def _hand_over(stage: Stage) -> None:
    """Another client adopts what was detached, and releases it."""
    ticket = await stage.leases.pop().detach(60)
    await (await stage.other.adopt(ticket)).release()


async def _foreign(stage: Stage) -> None:
    await stage.redis.set(stage.name, "not a lock")


@dataclass(frozen=True)
class Operation:
    """A call, the script that it sends, and the number of holds that the owner has afterwards."""

    script: Script
    prepare: Callable[[Stage], Awaitable[None]]
    run: Callable[[Stage], Awaitable[object]]
    left: int = 0
    renew_interval: float = 10


OPERATIONS = {
    "acquire": Operation(ACQUIRE, _nothing, _one_more, 1),
    "try_lock": Operation(ACQUIRE, _nothing, _try, 1),
    "nested acquire": Operation(ACQUIRE, _one_hold, _one_more, 2),
    "release to 1": Operation(RELEASE, _two_holds, _release_lock, 1),
    "release to 0": Operation(RELEASE_CLEAN, _one_hold, _release_lease, 0),
    "renew": Operation(RENEW, _renewed_hold, _renew, 1),
    "watchdog": Operation(RENEW, _renewed_hold, _be_renewed, 1, renew_interval=0.3),
    "detach": Operation(LOCK.detach, _one_hold, _hand_over, 0),
    "adopt": Operation(LOCK.adopt, _detached, _adopt, 1),
    "force_release": Operation(FORCE_RELEASE, _one_hold, _force, 0),
    "force_release of another's": Operation(FORCE_RELEASE, _held_by_another, _force, 0),
    "force_release of nobody's": Operation(FORCE_RELEASE, _nothing, _force, 0),
}
# Operations that are refused, or raise.
REFUSED = {
    "try_lock refused": Operation(ACQUIRE, _held_by_another, _try),
    "acquire, no lock": Operation(ACQUIRE, _foreign, _one_more),
    "nested acquire, lost": Operation(ACQUIRE, _lost, _one_more),
    "release to 0, taken": Operation(RELEASE_CLEAN, _taken, _release_lock),
    "release to 0, lost": Operation(RELEASE_CLEAN, _lost, _release_lease),
    "renew, taken": Operation(RENEW, _taken, _renew),
    "adopt, used up": Operation(LOCK.adopt, _adopted_by_another, _adopt),
}


@asynccontextmanager
async def stage(
    redis: Redis | RedisCluster,
    user: Redis | RedisCluster,
    name: str,
    *,
    owner: str | None = None,
    renew_interval: float = 10,
    command_timeout: float = COMMAND_TIMEOUT,
) -> AsyncIterator[Stage]:
    """A stage whose client is made from *user*; the lock belongs to the running task unless *owner* is given."""
    events: list[LockEvent] = []
    config = LockConfig(command_timeout=command_timeout, renew_interval=renew_interval, on_event=events.append)
    async with LockClient(redis) as other, LockClient(user, config=config) as client:
        yield Stage(redis, client, other, client.lock(name, owner=owner), events)


@dataclass(frozen=True)
class Seen:
    """The result of a call, without the parts that differ from run to run (ids, times)."""

    value: str
    error: str
    fields: dict[str, str]
    token_is_ours: bool
    ttl: int
    leases: list[int]
    held: int
    events: list[str]
    raised: str = field(compare=False)
    """What the call raised, with its times."""


async def observe(stage: Stage, operation: Operation) -> Seen:
    """Run the call, and look."""
    value: object = None
    error = raised = ""
    before = len(stage.events)
    try:
        value = await operation.run(stage)
    except AioLockError as failure:
        error = f"{type(failure).__name__} {failure.reason if isinstance(failure, LeaseLostError) else ''}"
        raised = str(failure)
    await stage.answered()
    fields = await stage.fields()
    tokens = {lease.token for lease in stage.leases if not lease.lost.is_set()}
    return Seen(
        value=f"lease with {value.holds} holds" if isinstance(value, Lease) else repr(value),
        error=error,
        # Renewals do not count: after a failure the client asks the server about its locks.
        fields=dict(_general(*item) for item in fields.items() if item[0] != "aiolock:renewal"),
        token_is_ours=tokens == {int(fields.get("aiolock:token", 0))},
        ttl=math.ceil(await stage.redis.pttl(stage.name) / 10_000),
        leases=[lease.holds for lease in stage.leases],
        held=stage.client.statistics().held,
        events=[type(e).__name__ for e in stage.events[before:] if not isinstance(e, (Renewed, RenewalLate))],
        raised=raised,
    )


async def clean_up(stage: Stage) -> None:
    """Give back the locks that the owner has, and free all others."""
    await asyncio.gather(*(lease.release() for lease in reversed(stage.leases)), return_exceptions=True)
    stage.leases.clear()
    await stage.answered()
    assert stage.client.statistics().held == 0
    fields = await stage.fields()
    owners = [field for field in fields if not field.startswith("aiolock:")]
    assert all(owner.endswith((":named:another", ":named:a third")) for owner in owners)
    await stage.redis.delete(stage.name)


async def change_nothing(stage: Stage, proxy: Proxy, late: Rule) -> None:
    """Fail if the request that *late* holds changes the lock, or any of its times, when it arrives now."""
    # The watchdog could change the lock, too.
    proxy.black_hole()
    await stage.redis.ping()
    await stage.redis.pexpire(stage.name, SHORTENED)
    before = await stage.fields()
    existed = await stage.redis.exists(stage.name)
    await late.deliver()
    assert await stage.redis.exists(stage.name) == existed
    assert await stage.fields() == before
    assert await stage.redis.pttl(stage.name) in (range(1, SHORTENED + 1) if existed else [-2])
    proxy.restore()


async def leftovers(redis: Redis) -> set[bytes]:
    """The keys in Redis that are not a memory of tokens."""
    keys: list[bytes] = await redis.keys()  # type: ignore[assignment]
    return {key for key in keys if not key.startswith(b"aiolock_token:")}


def _general(name: str, value: str) -> tuple[str, str]:
    if name in ("aiolock:acquisition", "aiolock:token"):
        return name, "some"
    return (name, value) if name.startswith("aiolock:") else ("the owner", value)
