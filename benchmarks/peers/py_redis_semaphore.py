"""`redis_semaphore.Mutex` and `Semaphore`: woken by BLPOP, renewed by a task for each lock, fenced."""

from redis_semaphore import Mutex, Semaphore, SemaphoreConfig

from benchmarks.peers.adapter import Lock, RedisPeer


class PyRedisSemaphore(RedisPeer):
    """A waiter keeps a connection in BLPOP, so the pool has two for each task: otherwise holders cannot release."""

    connections_per_task = 2

    def __init__(self, url: str, tasks: int, lease: float) -> None:
        super().__init__(url, tasks, lease)
        self._lost = 0

    def lock(self, name: str) -> Lock:
        mutex: Lock = Mutex(self.redis, name, lock_timeout=self.lease, on_lock_lost=self._count_loss)
        return mutex

    def permit(self, name: str, permits: int) -> Lock:
        config = SemaphoreConfig(name, permits, lock_timeout=self.lease)
        semaphore: Lock = Semaphore(self.redis, config, on_lock_lost=self._count_loss)
        return semaphore

    def lost(self) -> int:
        return self._lost

    def _count_loss(self, *_: object) -> None:
        self._lost += 1
