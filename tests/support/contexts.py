"""The context of a task belongs to its request: nothing else may keep the context alive after the end of the task."""

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable
from contextvars import ContextVar

_carried: ContextVar[object] = ContextVar("carried")


class _Request:
    """An object in the context, as a web framework puts one there."""


async def outlives_its_task(use: Callable[[], Awaitable[object]]) -> bool:
    """Whether anything keeps the context of a task that did *use* and has ended."""

    async def request() -> "weakref.ref[_Request]":
        carried = _Request()
        _carried.set(carried)
        await use()
        return weakref.ref(carried)

    carried = await asyncio.create_task(request())
    # The loop keeps a task until the callbacks of its end have run.
    await asyncio.sleep(0)
    gc.collect()
    return carried() is not None
