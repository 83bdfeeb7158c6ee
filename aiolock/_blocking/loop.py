"""The event loop of one blocking client, from the client's first use to its end."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

from aiolock._blocking.deputy import Deputy
from aiolock._errors import ClientClosedError
from aiolock._helpers.loop_thread import LoopThread

Close = Callable[[], Coroutine[Any, Any, None]]


class Loop(LoopThread):
    """An event loop that runs until it is told to end; then it runs *close*, while the deputies still work."""

    def __init__(self, close: Close) -> None:
        self._failure: BaseException | None = None
        # Only the loop uses these two.
        self._over = asyncio.Event()
        self._deputies: set[asyncio.Task[None]] = set()
        # This starts the thread, which uses the attributes above.
        super().__init__(partial(self._live, close), lambda: None)

    def deputy(self) -> Deputy:
        """A new deputy for the calling thread; raises like `call`."""
        deputy = Deputy(self.call)
        self.call(self._begin, deputy)
        return deputy

    def tell_end(self) -> None:
        """Tell the loop to end, without waiting."""
        with suppress(ClientClosedError):
            self.call(self._over.set)

    def end(self) -> None:
        """End the loop, wait for its end, and raise the exception of *close*, if there was one."""
        self.tell_end()
        self.join()
        if self._failure is not None:
            raise self._failure

    def _begin(self, deputy: Deputy) -> None:
        task = asyncio.create_task(deputy.run(), name=deputy.name)
        self._deputies.add(task)
        task.add_done_callback(self._deputies.discard)

    async def _live(self, close: Close) -> None:
        await self._over.wait()
        try:
            await close()
        except BaseException as error:
            self._failure = error
        finally:
            self.refuse_calls()
            for task in self._deputies:
                task.cancel()
            await asyncio.gather(*self._deputies, return_exceptions=True)
