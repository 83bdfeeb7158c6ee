"""The acts of a process's tasks with locks. An act is a coroutine function, named in the mixes at the end."""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

import anyio

import aiolock
from tests.simulation.faults import LOSES_DATA
from tests.simulation.fleet import Act, Member, use_fixed_lease

KEEP = 4.0
LOCKS = ("lock-a", "lock-b")
PERMITS = 2
# Seconds between two acts of a holder that acts until its lease ends.
_FINEST = 0.0005


# The parts of acts.


def pause(member: Member) -> float:
    lease = member.lease
    return member.draw.choice((0, 0.001, 0.01, 0.1, lease / 2, lease * 1.2)) * member.draw.random()


def some_wait(member: Member) -> float | None:
    return member.draw.choice((None, None, 0, 0.05, 1.0))


def some_lease(member: Member) -> float | None:
    lease = member.draw.choice((None, None, None, 0.2, member.lease))
    if lease is not None:
        use_fixed_lease()
    return lease


def some_lock(member: Member) -> aiolock.AsyncRLock:
    return member.locks.lock(member.draw.choice(LOCKS))


async def asked(member: Member, name: str, acquire: Coroutine[Any, Any, Any], wait: float | None = None) -> Any:
    """Await *acquire*, and let the checks know the waiter for the lock *name*, and the limit of its wait."""
    waits = member.fleet.checks.waits
    key, since = waits.begin(member.process, name), member.world.now
    got: Any = True
    try:
        got = await acquire
    except aiolock.LockTimeoutError:
        got = None
        raise
    finally:
        waits.end(key)
        if got is None:
            waits.gave_up(member.process, name, wait, since)
    return got


class Block:
    """``async with`` *held*, with the wait of *wait* seconds known to the checks."""

    def __init__(self, member: Member, name: str, held: Any, wait: float | None = None) -> None:
        self._member, self._name, self._held, self._wait = member, name, held, wait

    async def __aenter__(self) -> Any:
        (entered,) = await asked(self._member, self._name, self._enter(), self._wait)
        return entered

    async def _enter(self) -> tuple[Any]:
        # A block of a counting semaphore gives nothing, which does not mean that the wait has ended.
        return (await self._held.__aenter__(),)

    async def __aexit__(self, *error: Any) -> Any:
        return await self._held.__aexit__(*error)


async def body(member: Member, name: str, lease: Any, *, shared: bool = False, scoped: bool = True) -> None:
    """Work under the lock, and look at the lease now and then; if *scoped*, a loss cancels the work."""
    holders = member.fleet.checks.holders
    held = holders.took(member.process, name, lease, shared=shared)
    held.is_scoped = scoped
    try:
        for _ in range(member.draw.randint(0, 3)):
            await asyncio.sleep(pause(member))
            if not scoped and lease.lost.is_set():
                break
            lease.check()
            holders.acts(held)
    except asyncio.CancelledError:
        held.was_told = True
        # Some bodies roll back.
        if member.draw.random() < 0.3:
            await asyncio.sleep(0.05 * member.draw.random())
        raise
    finally:
        held.was_told = True
        holders.gives_back(held)


# The lock.


async def bare_block(member: Member) -> None:
    lock = some_lock(member)
    async with lock as lease:
        await body(member, lock.name, lease)


async def plain_block(member: Member) -> None:
    lock = some_lock(member)
    async with Block(member, lock.name, lock.hold()) as lease:
        await body(member, lock.name, lease)


async def bounded_block(member: Member) -> None:
    lock, wait = some_lock(member), some_wait(member)
    async with Block(member, lock.name, lock.hold(wait=wait, lease=some_lease(member)), wait) as lease:
        await body(member, lock.name, lease)


async def by_hand(member: Member) -> None:
    lock, wait = some_lock(member), some_wait(member)
    lease = await asked(member, lock.name, lock.try_lock(wait, some_lease(member)), wait)
    if lease is None:
        return
    try:
        await body(member, lock.name, lease, scoped=False)
    finally:
        if member.draw.random() < 0.5:
            await lease.release()
        else:
            await lock.release()


async def in_time(member: Member) -> None:
    """A timeout of anyio's or of asyncio's around a block."""
    lock, seconds = some_lock(member), member.draw.random() * 0.5
    if member.draw.random() < 0.5:
        with anyio.move_on_after(seconds):
            async with lock as lease:
                await body(member, lock.name, lease)
        return
    try:
        async with asyncio.timeout(seconds):
            async with lock as lease:
                await body(member, lock.name, lease)
    except TimeoutError as error:
        if isinstance(error, aiolock.AioLockError):
            raise


async def nested(member: Member) -> None:
    lock, wait = some_lock(member), some_wait(member)
    async with Block(member, lock.name, lock.hold(wait=wait, lease=some_lease(member)), wait) as lease:
        for _ in range(member.draw.randint(1, 4)):
            async with lock.hold(lease=some_lease(member)) as inner:
                await body(member, lock.name, inner)
        await body(member, lock.name, lease)


async def until_its_end(member: Member) -> None:
    """The holder acts until its lease ends, more and more often: its margin alone keeps it from acting too late."""
    use_fixed_lease()
    lock, holders = some_lock(member), member.fleet.checks.holders
    lease = await asked(member, lock.name, lock.acquire(lease=member.draw.choice((1.0, 3.0))))
    held = holders.took(member.process, lock.name, lease)
    try:
        while not lease.lost.is_set():
            holders.acts(held)
            await asyncio.sleep(max(_FINEST, lease.remaining / 2))
    finally:
        held.was_told = True
        holders.gives_back(held)
        with contextlib.suppress(aiolock.LeaseLostError):
            await lease.release()


async def renewed(member: Member) -> None:
    use_fixed_lease()
    lock = some_lock(member)
    async with Block(member, lock.name, lock.hold(lease=0.5)) as lease:
        await body(member, lock.name, lease)
        await lease.renew(1.0)
        await body(member, lock.name, lease)


async def renewed_by_tasks(member: Member) -> None:
    use_fixed_lease()
    lock = some_lock(member)
    async with Block(member, lock.name, lock.hold(lease=some_lease(member))) as lease:
        renewals = [asyncio.create_task(lease.renew(member.draw.uniform(0.1, 1.0))) for _ in range(3)]
        try:
            await body(member, lock.name, lease)
        finally:
            for renewal in renewals:
                renewal.cancel()
            await asyncio.gather(*renewals, return_exceptions=True)


async def again_and_again(member: Member) -> None:
    """One owner acquires many times, one after the other."""
    lock = some_lock(member)
    for _ in range(member.draw.randint(2, 6)):
        wait = some_wait(member)
        async with Block(member, lock.name, lock.hold(wait=wait, lease=some_lease(member)), wait) as lease:
            await body(member, lock.name, lease)


async def behind(member: Member) -> None:
    """More blocks in a row leave their releases behind than one client may have under way."""
    lock = some_lock(member)
    for _ in range(member.draw.randint(2, 24)):
        wait = some_wait(member)
        block = lock.hold(wait=wait, lease=some_lease(member), release="behind")
        async with Block(member, lock.name, block, wait) as lease:
            if member.draw.random() < 0.2:
                await body(member, lock.name, lease)


async def behind_alone(member: Member) -> None:
    """A lock of one task: its tries without a wait never overtake its own releases."""
    lock, began = member.locks.lock(f"lock-alone-{member.fleet.shared.counts['behind_alone']}"), member.world.now
    for _ in range(member.draw.randint(2, 24)):
        wait, since = member.draw.choice((0, 0, None)), member.world.now
        try:
            async with Block(member, lock.name, lock.hold(wait=wait, release="behind"), wait):
                await asyncio.sleep(0)
        except aiolock.LockTimeoutError as error:
            member.fleet.checks.refused_alone(member.process, began, since, error)
            return


async def behind_in_the_family(member: Member) -> None:
    """Blocks of other primitives that leave their releases behind."""
    locks = member.locks
    for _ in range(member.draw.randint(1, 8)):
        handle, name, shared = member.draw.choice(
            (
                (locks.fair_lock("lock-a"), "lock-a", False),
                (locks.read_write_lock("rw").read, "rw", True),
                (locks.read_write_lock("rw").write, "rw", False),
                (locks.semaphore("permits", PERMITS), "permits", False),
            )
        )
        wait = some_wait(member)
        async with Block(member, name, handle.hold(wait=wait, release="behind"), wait) as lease:
            await body(member, name, lease, shared=shared)


class _Detached:
    """A detached hold, as the checks see it: nobody gets it for *keep* seconds, unless it is adopted."""

    def __init__(self, member: Member, lease: aiolock.Lease, keep: float) -> None:
        self.token, self.lost = lease.token, self
        self.ticket = ""
        self.tries = 0
        self.times_adopted = 0
        self._world, self._ends = member.world, member.world.now + keep - 0.01

    def is_set(self) -> bool:
        return self._world.now >= self._ends


def _something(member: Member) -> tuple[Any, str, bool]:
    """A handle whose holds can be detached, its name, and whether it may have several holders."""
    locks = member.locks
    handle, shared = member.draw.choice(
        (
            (some_lock(member), False),
            (some_lock(member), False),
            (locks.fair_lock("lock-b"), False),
            (locks.read_write_lock("rw").read, True),
            (locks.read_write_lock("rw").write, False),
            (locks.semaphore("permits", PERMITS), False),
        )
    )
    return handle, handle.name, shared


async def hands_over(member: Member) -> None:
    """A block leaves its lock held, for any process that adopts it."""
    (handle, name, shared), wait = _something(member), some_wait(member)
    async with Block(member, name, handle.hold(wait=wait), wait) as lease:
        await body(member, name, lease, shared=shared)
        detached = _Detached(member, lease, keep := member.draw.choice((0.1, 1.0, KEEP)))
        detached.ticket = await lease.detach(keep)
    held = member.fleet.checks.holders.took(member.process, name, detached, shared=shared)
    member.fleet.shared.detached.append(held)


async def adopts(member: Member) -> None:
    """Any process adopts it, and sometimes two do."""
    holders, waiting = member.fleet.checks.holders, member.fleet.shared.detached
    if not waiting:
        await asyncio.sleep(pause(member))
        return
    held = waiting[at := member.draw.randrange(len(waiting))]
    detached: _Detached = held.lease
    was_over = detached.is_set()
    detached.tries += 1
    held.was_told = True
    holders.gives_back(held)
    if member.draw.random() < 0.7:
        del waiting[at]
    adoption = member.locks.adopt(detached.ticket, lease=some_lease(member))
    try:
        lease = await adoption
    except aiolock.LeaseLostError:
        # A later try may overtake this try.
        if detached.tries > 1 or was_over or detached.is_set():
            return
        raise
    async with lease:
        detached.times_adopted += 1
        holders.adopted(held, detached.times_adopted, lease.token)
        await body(member, held.name, lease, shared=held.is_shared)


async def named_owner(member: Member) -> None:
    """One task acquires, another releases; both act as one owner, and so do other tasks."""
    use_fixed_lease()
    lock = member.locks.lock(member.draw.choice(LOCKS), owner="job")
    lease = await lock.try_lock(member.draw.choice((0, 0.05, 1.0)), some_lease(member))
    if lease is None:
        return
    try:
        await asyncio.sleep(pause(member) / 4)
    finally:
        release = asyncio.create_task(_release(lease))
        release.add_done_callback(lambda done: done.cancelled() or done.exception())
        # A task that is cancelled before it begins does nothing.
        await asyncio.shield(release)


async def _release(lease: aiolock.Lease) -> None:
    await lease.release()


async def at_least(member: Member) -> None:
    started = member.world.now

    async def work() -> None:
        member.fleet.checks.holders.keep("lock-a", started, started + 0.3 / member.process.rate)
        await asyncio.sleep(pause(member) / 10)

    with contextlib.suppress(aiolock.LockTimeoutError):
        await member.locks.synchronized("lock-a", wait=1.0, at_least=0.3)(work)()


async def forgotten(member: Member) -> None:
    """The task ends while it holds the lock."""
    lock = some_lock(member)
    await asked(member, lock.name, lock.acquire())


async def forced(member: Member) -> None:
    if member.draw.random() < 0.1:
        await some_lock(member).force_release()


async def released(member: Member) -> None:
    """The lock is given back by its handle, by the lease, or by another task; `forced` and `closes` do it otherwise."""
    lock = some_lock(member)
    lease = await asked(member, lock.name, lock.acquire())
    try:
        await body(member, lock.name, lease, scoped=False)
    finally:
        way = member.draw.randrange(3)
        if way == 2:
            release = asyncio.create_task(lease.release())
            release.add_done_callback(lambda done: done.cancelled() or done.exception())
            await asyncio.shield(release)
        else:
            await (lock.release() if way else lease.release())


async def closes(member: Member) -> None:
    """A client of the act's own, which is closed while it holds a lock or waits for one."""
    locks = member.make_client()
    waiting = asyncio.create_task(_take(locks, member.draw.choice(LOCKS)))
    try:
        await asyncio.sleep(pause(member))
    finally:
        await locks.aclose()
        member.fleet.checks.closed(locks)
        await asyncio.wait([waiting])


async def _take(locks: aiolock.LockClient, name: str) -> None:
    with contextlib.suppress(aiolock.ClientClosedError, aiolock.LeaseLostError, aiolock.BackendError):
        async with locks.lock(name):
            await asyncio.sleep(3600)


async def looks(member: Member) -> None:
    lock = some_lock(member)
    await lock.locked()
    await lock.holder()


async def crowd(member: Member) -> None:
    """Many tasks want the same lock at once, each for a moment."""
    lock = member.locks.lock("lock-a")

    async def enter() -> None:
        async with Block(member, lock.name, lock):
            await asyncio.sleep(0)

    entering = [asyncio.create_task(enter()) for _ in range(12)]
    try:
        await asyncio.gather(*entering)
    finally:
        for task in entering:
            task.cancel()
        await asyncio.wait(entering)


async def both_locks(member: Member) -> None:
    lock = member.locks.multi(*member.draw.sample(LOCKS, 2))
    async with lock.hold(wait=some_wait(member)) as lease:
        await asyncio.sleep(pause(member))
        lease.check()


async def leads(member: Member) -> None:
    holders = member.fleet.checks.holders
    async with member.locks.leader("lock-a", pause=0.05) as term:
        held = holders.took(member.process, "lock-a", term)
        held.is_scoped = True
        try:
            await asyncio.sleep(pause(member))
            term.check()
            holders.acts(held)
        finally:
            held.was_told = True
            holders.gives_back(held)


# The family.


async def fair(member: Member) -> None:
    lock, wait = member.locks.fair_lock(member.draw.choice(LOCKS)), some_wait(member)
    async with Block(member, lock.name, lock.hold(wait=wait, lease=some_lease(member)), wait) as lease:
        await body(member, lock.name, lease)


async def reads(member: Member) -> None:
    lock, wait = member.locks.read_write_lock("rw").read, some_wait(member)
    async with Block(member, "rw", lock.hold(wait=wait, lease=some_lease(member)), wait) as lease:
        await body(member, "rw", lease, shared=True)


async def writes(member: Member) -> None:
    lock, wait = member.locks.read_write_lock("rw").write, some_wait(member)
    async with Block(member, "rw", lock.hold(wait=wait, lease=some_lease(member)), wait) as lease:
        await body(member, "rw", lease)


async def writes_and_reads(member: Member) -> None:
    lock, wait = member.locks.read_write_lock("rw"), some_wait(member)
    async with Block(member, "rw", lock.write.hold(wait=wait), wait) as lease:
        await asyncio.sleep(pause(member))
        async with lock.read.hold() as inner:
            await body(member, "rw", inner, shared=True)
        lease.check()


async def downgrades(member: Member) -> None:
    """A writer that goes on as a reader."""
    lock, wait = member.locks.read_write_lock("rw"), some_wait(member)
    writing = await asked(member, "rw", lock.write.try_lock(wait), wait)
    if writing is None:
        return
    try:
        async with lock.read.hold() as lease:
            await writing.release()
            await body(member, "rw", lease, shared=True)
    finally:
        if not writing.given_back:
            await writing.release()


async def permit(member: Member) -> None:
    permits, wait = member.locks.semaphore("permits", PERMITS), some_wait(member)
    async with Block(member, "permits", permits.hold(wait=wait, lease=some_lease(member)), wait) as lease:
        await body(member, "permits", lease)


class _CountedPermit:
    """Stands for the lease of a counting semaphore's permit, which has none."""

    def __init__(self, token: int) -> None:
        self.token, self.lost = token, self

    def is_set(self) -> bool:
        return False


async def counted(member: Member) -> None:
    fleet = member.fleet
    # The permit of a process that died, or whose release was refused for good, never comes back.
    forgets = fleet.faults.planned("kill", "shut_down", *LOSES_DATA) or fleet.faults.may_refuse_for_good
    wait = member.draw.choice((0, 0.05, 1.0)) if forgets else some_wait(member)
    async with Block(member, "sem", member.locks.counting_semaphore("sem", PERMITS).hold(wait=wait), wait):
        fleet.shared.permits_granted += 1
        held = fleet.checks.holders.took(member.process, "sem", _CountedPermit(fleet.shared.permits_granted))
        try:
            await asyncio.sleep(pause(member))
        finally:
            fleet.checks.holders.gives_back(held)


async def latched(member: Member) -> None:
    latch = member.locks.count_down_latch("latch")
    await latch.try_set_count(2)
    await latch.count_down()
    since, checks = member.world.now, member.fleet.checks
    if await asked(member, latch.name, latch.wait(member.draw.choice((0, 0.1, 1.0)))):
        checks.family.opened(
            member.process.name, checks.topology.truth(latch.name), since, checks.faults.replaced_until
        )


async def once(member: Member) -> None:
    """A body that runs once does not run twice at a time, nor again while its outcome is kept."""
    world, done, checks = member.world, member.fleet.shared.done, member.fleet.checks
    name, started = f"once-{member.draw.randrange(12)}", world.now
    async with member.locks.once(name, keep=KEEP, wait=member.draw.choice((None, 0, 0.5))) as turn:
        if not turn:
            return
        last = done.get(name, -9.0)
        if started > last > checks.faults.lost_until(name) and world.now < last + KEEP - 0.2:
            world.violation("once", f"{member.process.name} runs {name} again, which ran at {last:.3f}")
        held = checks.holders.took(member.process, name, turn.lease)
        try:
            await asyncio.sleep(pause(member) / 4)
            turn.result = "done"
            ended = world.now
        finally:
            checks.holders.gives_back(held)
    done[name] = ended


async def refreshes(member: Member) -> None:
    """One run at a time is under way, and an old result, while it is kept, is that of the last run."""
    world, shared, checks = member.world, member.fleet.shared, member.fleet.checks
    name = f"fresh-{member.draw.randrange(4)}"
    last, ended = shared.results.get(name, (0, 0.0))
    once = member.locks.once(name, keep=KEEP / 8, stale=KEEP, wait=member.draw.choice((None, 0, 0.5)))
    async with once as turn:
        if not turn:
            found = int(turn.result) if turn.done and turn.result is not None else None
            gone = world.now > ended + KEEP or checks.faults.lost_until(name) >= ended
            if found is not None and found < last and not gone:
                world.violation("once", f"{member.process.name} gets result {found} of {name}, and {last} came before")
            if found is None and turn.done:
                world.violation("once", f"{member.process.name} gets no result of {name}")
            return
        held = checks.holders.took(member.process, name, turn.lease)
        try:
            shared.runs += 1
            number = shared.runs
            await asyncio.sleep(pause(member) / 4)
            turn.result = str(number)
            ended = world.now
        finally:
            checks.holders.gives_back(held)
    shared.results[name] = max(shared.results.get(name, (0, 0.0)), (number, ended))


# Operators' acts. They change values that others rely on, so that the checks do not apply.


async def administers_permits(member: Member) -> None:
    permits = member.locks.semaphore("permits", PERMITS)
    await permits.available()
    await permits.holders()
    await permits.set_permits(member.draw.randint(1, 4))
    await permits.add_permits(1)
    await permits.force_release()


async def administers_count(member: Member) -> None:
    semaphore = member.locks.counting_semaphore("sem")
    await semaphore.try_set_permits(PERMITS)
    await semaphore.add_permits(1)
    await semaphore.drain()
    await semaphore.available()


async def administers_readers(member: Member) -> None:
    lock = member.locks.read_write_lock("rw")
    await lock.holders()
    await member.draw.choice((lock.read, lock.write)).force_release()


async def works_by_slots(member: Member) -> None:
    await member.locks.slot("job", every=60)


ADMINISTRATION: list[Act] = [
    *(administers_permits, administers_count, administers_readers, works_by_slots),
    *(permit, counted, reads, writes),
]
_OF_A_LOCK: list[Act] = [
    *(bare_block, plain_block, bounded_block, by_hand, in_time, nested, renewed, again_and_again, forgotten, looks),
]
# The acts of a seed are one of these.
MIXES: list[list[Act]] = [
    _OF_A_LOCK,
    [bare_block, bounded_block, by_hand, in_time, both_locks],
    [again_and_again, in_time],
    [crowd, bounded_block],
    [named_owner, named_owner, by_hand],
    [nested, nested, in_time],
    [until_its_end, until_its_end, bounded_block],
    [released, released, by_hand, bounded_block, closes],
    [named_owner, bounded_block, renewed_by_tasks],
    [leads, bounded_block],
    [at_least, bounded_block, in_time],
    [once, refreshes, bounded_block],
    [latched, bounded_block],
    [fair],
    [fair, bounded_block, by_hand, in_time],
    [reads, writes, writes_and_reads, downgrades],
    [permit],
    [counted, bounded_block],
    [forced, bounded_block, by_hand],
    [behind, behind_alone, bounded_block],
    [behind_in_the_family],
    [hands_over, hands_over, adopts, adopts, bounded_block],
]
QUORUM_MIXES: list[list[Act]] = [
    _OF_A_LOCK,
    [bare_block, by_hand, both_locks],
    [named_owner, bounded_block],
    [leads, by_hand],
    [released, released, closes],
    [behind, bounded_block],
]
