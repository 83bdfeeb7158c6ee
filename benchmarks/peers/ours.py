"""aiolock itself, with its defaults: tokens, watchdog and all."""

from collections.abc import Sequence
from dataclasses import asdict

from aiolock import AsyncCountDownLatch, AsyncRLock, LockClient, LockConfig
from benchmarks.peers.adapter import Lock, Peer


def _permit_of(client: LockClient, name: str, permits: int) -> Lock:
    """The semaphore whose permits expire, by the name that it has in the aiolock of this process."""
    lock: Lock = getattr(client, "permit_expirable_semaphore", client.semaphore)(name, permits)
    return lock


def _counted_of(client: LockClient, name: str, permits: int) -> Lock:
    """The semaphore that only counts, likewise."""
    lock: Lock = getattr(client, "counting_semaphore", client.semaphore)(name, permits)
    return lock


class Ours(Peer):
    """One `LockClient`."""

    def __init__(self, url: str, tasks: int, lease: float) -> None:
        super().__init__(url, tasks, lease)
        self._client = LockClient.from_url(url, config=LockConfig(lease=lease))

    def lock(self, name: str) -> Lock:
        return self._client.lock(name)

    def renewed(self, name: str) -> Lock:
        return _Held(self._client.lock(name, owner="keeper"))

    def several(self, names: Sequence[str]) -> Lock:
        return self._client.multi(*names)

    def permit(self, name: str, permits: int) -> Lock:
        return _permit_of(self._client, name, permits)

    def reader(self, name: str) -> Lock:
        return self._client.read_write_lock(name).read

    def counters(self) -> dict[str, float]:
        return {name: float(value) for name, value in asdict(self._client.statistics()).items()}

    def lost(self) -> int:
        return self._client.statistics().losses

    async def open(self) -> None:
        await self._client.__aenter__()

    async def close(self) -> None:
        await self._client.aclose()


class OursBehind(Ours):
    """With blocks that leave their release behind."""

    def __init__(self, url: str, tasks: int, lease: float) -> None:
        super().__init__(url, tasks, lease)
        self._client = LockClient.from_url(url, config=LockConfig(lease=lease, release="behind"))


class OursWithTelemetry(Ours):
    """With metrics, kept by the SDK of OpenTelemetry; no task is in a trace, so that there are no spans."""

    def __init__(self, url: str, tasks: int, lease: float) -> None:
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import InMemoryMetricReader

        from aiolock.opentelemetry import instrument

        super().__init__(url, tasks, lease)
        config = instrument(LockConfig(lease=lease), meter_provider=MeterProvider([InMemoryMetricReader()]))
        self._client = LockClient.from_url(url, config=config)


class OursOneByOne(Ours):
    """Without the multi lock."""

    def several(self, names: Sequence[str]) -> Lock:
        return Peer.several(self, names)


class OursAsLock(Ours):
    """With a lock in place of a semaphore, or of a read lock."""

    def permit(self, name: str, permits: int) -> Lock:
        return self.lock(name)

    def reader(self, name: str) -> Lock:
        return self.lock(name)


class OursFair(Ours):
    """With the fair lock."""

    def lock(self, name: str) -> Lock:
        return self._client.fair_lock(name)


class OursRead(Ours):
    """With the read lock."""

    def lock(self, name: str) -> Lock:
        return self.reader(name)


class OursWrite(Ours):
    """With the write lock."""

    def lock(self, name: str) -> Lock:
        return self._client.read_write_lock(name).write


class OursPermit(Ours):
    """With a semaphore of one permit, which expires."""

    def lock(self, name: str) -> Lock:
        return self.permit(name, 1)


class OursLatch(Ours):
    """With a latch that is set to one, and counted down."""

    def lock(self, name: str) -> Lock:
        return _Counted(self._client.count_down_latch(name))


class OursCounted(Ours):
    """With the counting semaphore."""

    def lock(self, name: str) -> Lock:
        return self.permit(name, 1)

    def permit(self, name: str, permits: int) -> Lock:
        return _counted_of(self._client, name, permits)


class _Counted(Lock):
    def __init__(self, latch: AsyncCountDownLatch) -> None:
        self._latch = latch

    async def __aenter__(self) -> object:
        return await self._latch.try_set_count(1)

    async def __aexit__(self, *_: object) -> None:
        await self._latch.count_down()


class _Held(Lock):
    """A lock of a named owner by `acquire` and `release`: a block would be nested in all others of its task."""

    def __init__(self, lock: AsyncRLock) -> None:
        self._lock = lock

    async def __aenter__(self) -> object:
        return await self._lock.acquire()

    async def __aexit__(self, *_: object) -> None:
        await self._lock.release()
