"""A worker of the soak: a process whose tasks enter locks until they are told to rest, and write down what happens.

Its orders come by the standard input: `rest` ends the tasks, the end of the input ends the process. SIGTERM cancels
everything, as a web server does that is shut down.
"""

import asyncio
import logging
import os
import signal
import sys
import traceback
from pathlib import Path
from random import Random
from time import monotonic

from aiolock import BackendError, LeaseLostError, LockClient, LockTimeoutError, ReplicationError
from tests.soak.forms import Visitor, Waits, ended
from tests.soak.journal import Entry, Journal
from tests.soak.settings import Settings, connected

BEAT = 0.2
REST = 0.1
QUIET_WITHIN = 10.0
DOCUMENTED = (LeaseLostError, LockTimeoutError, BackendError, ReplicationError)


class Worker:
    """The tasks of one process."""

    def __init__(self, settings: Settings, journal: Journal) -> None:
        self._settings = settings
        self._journal = journal
        self._waits = Waits()
        self._resting = asyncio.Event()

    async def run(self, orders: asyncio.StreamReader) -> None:
        async with connected(self._settings) as locks:
            beat = asyncio.create_task(self._beat())
            obeying = asyncio.create_task(self._obey(orders))
            try:
                async with asyncio.TaskGroup() as group:
                    for number in range(self._settings.tasks):
                        group.create_task(self._visit_for_ever(number, locks))
                await self._report_idle(locks)
                await obeying
            finally:
                await ended(beat, 0)
                await ended(obeying, 0)

    async def _visit_for_ever(self, number: int, locks: LockClient) -> None:
        settings = self._settings
        chance = Random(f"{settings.seed} {settings.journal} {number}")
        who = f"{settings.worker}-{number}"
        visitor = Visitor(who, locks, self._journal, self._waits, chance=chance, stays=settings.stays)
        while not self._resting.is_set():
            await asyncio.sleep(chance.uniform(0, REST))
            # Each visit is a task of its own, as each request is in a web server.
            visit = asyncio.ensure_future(self._visit(visitor))
            await ended(visit)

    async def _visit(self, visitor: Visitor) -> None:
        try:
            await visitor.visit()
        except DOCUMENTED as error:
            note = f"{type(error).__name__} {error.reason if isinstance(error, LeaseLostError) else error}"
            self._journal.write(Entry("failed", monotonic(), note=note))
        except Exception:
            self._journal.write(Entry("error", monotonic(), note=traceback.format_exc()))

    async def _beat(self) -> None:
        while True:
            waits = self._waits
            self._journal.write(Entry("beat", monotonic(), amount=memory(), asked=waits.oldest(), note=waits.names()))
            await asyncio.sleep(BEAT)

    async def _obey(self, orders: asyncio.StreamReader) -> None:
        async for _ in orders:
            self._resting.set()
        self._resting.set()

    async def _report_idle(self, locks: LockClient) -> None:
        """Wait until only connections are left of the visits."""
        until = monotonic() + QUIET_WITHIN
        while (busy := left_of(locks)) and monotonic() < until:
            await asyncio.sleep(BEAT)
        self._journal.write(Entry("idle", monotonic(), note=busy))


def left_of(locks: LockClient) -> str:
    """The remains of ended visits in the client."""
    statistics = locks.statistics()
    counts = {name: getattr(statistics, name) for name in ("held", "parked", "subscriptions", "pending")}
    return ", ".join(f"{name} {count}" for name, count in counts.items() if count)


def memory() -> int:
    """Kilobytes of this process that are in memory; 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


class _Handler(logging.Handler):
    """Writes what is logged into the journal."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(logging.WARNING)
        self._journal = journal

    def emit(self, record: logging.LogRecord) -> None:
        note = f"{record.name}: {self.format(record)}"
        self._journal.write(Entry("log", monotonic(), form=record.levelname, note=note))


async def main(settings: Settings, journal: Journal) -> None:
    loop = asyncio.get_running_loop()
    orders = asyncio.StreamReader()
    pipe, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    work = asyncio.ensure_future(Worker(settings, journal).run(orders))
    loop.add_signal_handler(signal.SIGTERM, work.cancel)
    journal.write(Entry("begin", monotonic(), note=f"{sys.version.split()[0]} {settings.loop}"))
    await asyncio.wait([work])
    pipe.close()
    await asyncio.sleep(0.1)
    left = asyncio.all_tasks() - {asyncio.current_task()}
    journal.write(Entry("end", monotonic(), amount=len(left), note=" ".join(map(repr, left))))
    if not work.cancelled():
        work.result()


def run(settings: Settings) -> None:
    journal = Journal(Path(settings.journal))
    logging.getLogger().addHandler(_Handler(journal))
    factory = asyncio.new_event_loop
    if settings.loop == "uvloop":
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main(settings, journal))


if __name__ == "__main__":
    run(Settings.decode(sys.argv[1]))
