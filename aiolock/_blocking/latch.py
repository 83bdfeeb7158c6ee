"""The count-down latch of threads."""

from typing import Final, final

from aiolock._blocking.verbs import Handle, plain, verb
from aiolock._primitives.latch import AsyncCountDownLatch


@final
class CountDownLatch(Handle[AsyncCountDownLatch]):
    """A count-down latch; made by `LockClient.count_down_latch`. See `AsyncCountDownLatch`."""

    __slots__ = ()

    try_set_count: Final = verb(AsyncCountDownLatch.try_set_count)
    count_down: Final = verb(AsyncCountDownLatch.count_down)
    count: Final = verb(AsyncCountDownLatch.count)
    wait: Final = verb(AsyncCountDownLatch.wait)
    delete: Final = verb(AsyncCountDownLatch.delete)
    statistics: Final = plain(AsyncCountDownLatch.statistics)

    @property
    def name(self) -> str:
        """The name that was given to the factory."""
        return self._async.name
