"""A thread looks at the server while the event loop of the test stands still."""

import threading
import time
from types import TracebackType
from typing import Self

from redis import Redis

_PAUSE = 0.002


class Onlooker:
    """Looks at the lock *key*: which acquisitions have it, one after the other, and until when it is held."""

    def __init__(self, url: str, key: str) -> None:
        self.acquisitions: list[bytes | None] = []
        """The acquisitions so far, the first of which had the lock at the beginning; `None` stands for a free lock."""
        self.held_until: float = 0.0
        """The time at which the server would free the lock, or has freed it, on the monotonic clock."""
        self._key = key
        self._redis = Redis.from_url(url)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        while not self.acquisitions:
            time.sleep(_PAUSE)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._redis.close()

    def _look(self) -> None:
        while not self._stop.is_set():
            asked = time.monotonic()
            look = self._redis.pipeline()
            look.hget(self._key, "aiolock:acquisition")
            look.pttl(self._key)
            acquisition, left = look.execute()
            if left >= 0:
                self.held_until = asked + left / 1000
            if self.acquisitions[-1:] != [acquisition]:
                self.acquisitions.append(acquisition)
            time.sleep(_PAUSE)
