"""Further processes of a run: started by its first one, spoken with in lines of JSON."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from benchmarks.run import Run


class Worker:
    """A process that runs the same workload as worker number 1, 2, ..."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, run: Run, number: int, sockets: Sequence[int] = ()) -> "Worker":
        """Start it; it inherits the *sockets*."""
        told = json.dumps(asdict(replace(run, worker=number)))
        command = (sys.executable, "-m", "benchmarks.child", told)
        return cls(await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, pass_fds=sockets))

    async def tell(self, what: object) -> None:
        """Send one line."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what).encode() + b"\n")
        await self._process.stdin.drain()

    async def hear(self) -> Any:
        """Receive one line."""
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a worker process ended with status {await self._process.wait()}")
        return json.loads(line)

    async def end(self) -> None:
        """Wait until it has ended, as it does by itself after its last line; end it if it does not."""
        try:
            await asyncio.wait_for(self._process.wait(), 10)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


def say(what: object) -> None:
    """In a worker: send one line to the process that started it."""
    print(json.dumps(what), flush=True)


async def hear() -> Any:
    """In a worker: receive one line from it."""
    return json.loads(await asyncio.to_thread(sys.stdin.readline))
