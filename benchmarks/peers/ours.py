"""aiolock itself, with its defaults: tokens, watchdog and all."""

from collections.abc import Sequence
from dataclasses import asdict

from aiolock import AsyncRLock, LockClient, LockConfig
from benchmarks.peers.adapter import Lock, Peer


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
        return self._client.permit_expirable_semaphore(name, permits)

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


class OursCounted(Ours):
    """With the semaphore that only counts."""

    def permit(self, name: str, permits: int) -> Lock:
        return self._client.semaphore(name, permits)


class _Held(Lock):
    """A lock of a named owner by `acquire` and `release`: a block would be nested in all others of its task."""

    def __init__(self, lock: AsyncRLock) -> None:
        self._lock = lock

    async def __aenter__(self) -> object:
        return await self._lock.acquire()

    async def __aexit__(self, *_: object) -> None:
        await self._lock.release()
