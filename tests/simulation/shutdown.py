"""
The end of a process that is asked to end: each way is a function in `WAYS`.

In each of them the last step is that of `asyncio.run`, which cancels every task that is left.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tests.simulation.fleet import Member, mark_as_cancelled
from tests.simulation.process import Process

# Seconds for which a web server waits for its handlers, and then for those that it has cancelled.
_PATIENCE = 1.0


def as_asyncio_run(member: Member) -> None:
    """Every task is cancelled, those of aiolock too; then the process is gone."""
    member.world.trace(member.process.name, "cancels all tasks")
    member.is_shutting_down = True
    cancel_all(member.process)
    if member.main.done():
        _end(member)
    else:
        member.main.add_done_callback(lambda _: _end(member))


def as_uvicorn(member: Member) -> None:
    """Handlers have some time; those that are left are cancelled, and the lifespan closes the client meanwhile."""
    _shut_down(member, _handlers_end(member, 0.0))


def as_aiohttp(member: Member) -> None:
    """Handlers have some time; those that are left are cancelled and awaited, and `on_cleanup` closes the client."""
    _shut_down(member, _handlers_end(member, _PATIENCE))


def at_once(member: Member) -> None:
    """The client is closed while tasks use it."""
    _shut_down(member, asyncio.sleep(0))


def cancel_all(process: Process) -> None:
    """Cancel every task of the process, those of aiolock too."""
    for task in process.unfinished_tasks():
        mark_as_cancelled(task)
        task.cancel()


WAYS: list[Callable[[Member], None]] = [as_asyncio_run, as_uvicorn, as_aiohttp, at_once]


def _shut_down(member: Member, first: Coroutine[Any, Any, None]) -> None:
    member.world.trace(member.process.name, "begins nothing any more")
    member.is_shutting_down = True
    closing = member.process.create_task(_close(member, first), name="close")
    closing.add_done_callback(lambda _: as_asyncio_run(member))


async def _close(member: Member, first: Coroutine[Any, Any, None]) -> None:
    await first
    if hasattr(member, "locks"):
        await member.locks.aclose()


async def _handlers_end(member: Member, patience: float) -> None:
    if not member.acting:
        return
    await asyncio.wait(list(member.acting), timeout=_PATIENCE)
    left = list(member.acting)
    for task in left:
        member.cancel(task)
    if left and patience:
        await asyncio.wait(left, timeout=patience)


def _end(member: Member) -> None:
    member.world.after(0.001, _kill, member)


def _kill(member: Member) -> None:
    process = member.process
    if process.killed:
        return
    if left := process.unfinished_tasks():
        member.world.trace(process.name, f"ends with {len(left)} unfinished tasks")
    if hasattr(member, "locks"):
        member.fleet.checks.closed(member.locks)
    member.fleet.kill(process)
