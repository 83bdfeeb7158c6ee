"""
A worker of the demo: a process whose tasks make deposits, each under the lock.

`Worker.deposit` is the part to read: it is how the lock is meant to be used.
"""

import asyncio
import os
import random
import signal
import sys
from pathlib import Path
from time import monotonic

from aiolock import AsyncRLock, LeaseLostError, LockClient, LockConfig, LockEvent, Lost, Renewed
from examples.demo.account import Account, StaleTokenError
from examples.demo.protocol import LOCK, TASKS, Event, Settings, What, encode, settings_of

WORK = 0.01
# The most seconds between two deposits.
REST = 0.12
LONG_WORK = 30.0


class Worker:
    """The tasks of one process; *name* is that of the worker."""

    def __init__(self, name: str, account: Account) -> None:
        self._name = name
        self._account = account
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._holding = ""
        self._orders: set[str] = set()
        self._toiling = ""
        self._stopping = False

    async def deposit(self, lock: AsyncRLock, who: str) -> None:
        """Add one to the balance."""
        # The task waits its turn here. If the lock were lost, the block would be cancelled.
        async with lock as lease:
            self._begin(who, lease.token)
            # From now on the file refuses older tokens.
            balance = self._account.read(lease.token)
            await asyncio.sleep(self._effort(who, lease.token))
            # The check costs nothing, and yet a process may stop right after it, for any length of time. So the file
            # looks whether this token is still its newest.
            lease.check()
            self._freeze_if_told(who, lease.token)
            self._account.write(balance + 1, lease.token)
            tell(who, "wrote", lease.token, balance + 1)

    async def _report_deposit(self, lock: AsyncRLock, who: str) -> None:
        tell(who, "waits")
        try:
            await self.deposit(lock, who)
        except StaleTokenError as error:
            tell(who, "refused", error.token, note=str(error.highest))
        except LeaseLostError as error:
            tell(who, "failed", error.token, note=error.reason)
        except asyncio.CancelledError:
            tell(who, "cancelled")
            raise
        else:
            tell(who, "released")

    async def run(self, settings: Settings, orders: asyncio.StreamReader) -> None:
        """Make deposits until the orders end."""
        config = LockConfig(
            prefix=settings.prefix,
            lease=settings.lease,
            token_retention=60,
            client_name=f"demo-worker-{self._name}",
            on_event=self._on_event,
        )
        async with LockClient.from_url(settings.url, config=config) as locks:
            lock = locks.lock(LOCK)
            await lock.locked()
            tell(self._name, "ready")
            await orders.readline()
            async with asyncio.TaskGroup() as group:
                for task in TASKS:
                    group.create_task(self._deposit_for_ever(lock, self._name + task))
                await self._obey(orders)

    async def _deposit_for_ever(self, lock: AsyncRLock, who: str) -> None:
        """Each deposit is a task of its own, as each request is in a web server."""
        while not self._stopping:
            await asyncio.sleep(random.uniform(0, REST))
            self._tasks[who] = asyncio.create_task(self._report_deposit(lock, who))
            await asyncio.wait([self._tasks[who]])
            if not self._tasks[who].cancelled():
                self._tasks[who].result()

    async def _obey(self, orders: asyncio.StreamReader) -> None:
        async for line in orders:
            order = line.decode().strip()
            if order == "cancel":
                self._tasks[self._holding].cancel()
            else:
                self._orders.add(order)
        # The pipe was closed: all is over, or the demo has died.
        self._stopping = True
        self._orders.clear()
        if self._toiling:
            self._tasks[self._toiling].cancel()

    def _on_event(self, event: LockEvent) -> None:
        if isinstance(event, Renewed):
            tell(self._holding, "renewed", event.token)
        elif isinstance(event, Lost):
            tell(self._holding, "lost", event.token, note=event.reason)

    def _begin(self, who: str, token: int) -> None:
        self._holding, self._toiling = who, ""
        tell(who, "holds", token)

    def _effort(self, who: str, token: int) -> float:
        if "toil" not in self._orders:
            return WORK
        self._orders.remove("toil")
        self._toiling = who
        tell(who, "toils", token)
        return LONG_WORK

    def _freeze_if_told(self, who: str, token: int) -> None:
        if "freeze" in self._orders:
            self._orders.remove("freeze")
            tell(who, "freezes", token)
            # The process stops itself, so that it stops exactly here.
            os.kill(os.getpid(), signal.SIGSTOP)
            tell(who, "wakes", token)


def tell(who: str, what: What, token: int = 0, balance: int = 0, note: str = "") -> None:
    """Report to the demo."""
    sys.stdout.write(encode(Event(monotonic(), who, what, token, balance, note)))
    sys.stdout.flush()


async def main(name: str) -> None:
    """Take the settings, then orders, from the standard input."""
    orders = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    pipe, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    try:
        settings = settings_of(await orders.readline())
        await Worker(name, Account(Path(settings.folder))).run(settings, orders)
    finally:
        pipe.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
