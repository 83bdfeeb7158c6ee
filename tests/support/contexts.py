"""What the context of a task carries is the request's: nobody else may keep it alive when the task has ended."""

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable
from contextvars import ContextVar

_carried: ContextVar[object] = ContextVar("carried")


class _Request:
    """What a web framework would put into a context, for example."""


async def outlives_its_task(use: Callable[[], Awaitable[object]]) -> bool:
    """Whether anything has kept the context of a task that did *use*, and has ended since."""

    async def request() -> "weakref.ref[_Request]":
        carried = _Request()
        _carried.set(carried)
        await use()
        return weakref.ref(carried)

    carried = await asyncio.create_task(request())
    await asyncio.sleep(0)  # The loop keeps a task until the callbacks of its end have run.
    gc.collect()
    return carried() is not None
