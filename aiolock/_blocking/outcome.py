"""
The outcome of a job: the event loop sets it, and a thread waits for it.

Python's `Future` is not safe under interrupts: if an interrupt arrives while a thread enters or leaves the future's
condition, the condition stays locked for ever, and the loop hangs when it sets the future.
"""

import threading
from typing import Generic, TypeVar

T = TypeVar("T")
_LISTEN_EVERY = 1.0


class Outcome(Generic[T]):
    """A result or an error, which is set once; only `wait` takes a lock."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self._values: list[T] = []
        self._unset = threading.Lock()
        _ = self._unset.acquire()

    @property
    def is_set(self) -> bool:
        """Whether the result or the error is known."""
        return bool(self._values) or self.error is not None

    @property
    def value(self) -> T:
        """The result; raises the error."""
        if self.error is not None:
            raise self.error
        return self._values[0]

    def wait(self) -> T:
        """Wait for the result, and return it, or raise the error; for one thread."""
        # Python handles a signal that comes just before the wait, and on Windows any signal, only between two waits.
        while not self._unset.acquire(timeout=_LISTEN_EVERY):
            pass
        return self.value

    def set(self, value: T) -> None:
        """Set the result, and let the thread go on."""
        self._values.append(value)
        self._unset.release()

    def fail(self, error: BaseException) -> None:
        """Set the error, and let the thread go on."""
        self.error = error
        self._unset.release()
