"""A fork of the test's process that goes on in the coroutine of the test."""

import asyncio
import os
import signal
import traceback
from collections.abc import Callable, Coroutine
from typing import Any


async def run_in_fork(child: Callable[[], Coroutine[Any, Any, None]], *, on_loop: bool) -> None:
    """Run the coroutine function in a fork of this process, *on_loop* in the fork of this loop; the loop waits."""
    loop = asyncio.get_running_loop()
    if (pid := os.fork()) == 0:
        status = 1
        try:
            signal.alarm(20)
            # In a fork, asyncio sees no running loop.
            if on_loop:
                asyncio._set_running_loop(loop)
            await child()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            # All that is open here belongs to the parent, too, so nothing is cleaned up.
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
