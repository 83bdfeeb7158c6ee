"""A command under a lock: it takes the lock, runs the command, and reports how both ended."""

import asyncio
import json
import os
import signal
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import PurePath

from redis.asyncio import Redis, RedisCluster

from aiolock import AioLockError, BackendError, Lease, LeaseLostError, LockClient, LockConfig, LockEvent, Lost, Renewed
from aiolock._cli import options
from aiolock._cli.command.guard import PASSED_ON
from aiolock._cli.command.guarded import Guarded
from aiolock._cli.failure import told_as_json, told_in_words
from aiolock._cli.output import short, tell, write_error
from aiolock._cli.servers import connected
from aiolock._cli.taking import Handle, holders_of, lock_of
from aiolock._cli.verb import LOST, NOT_GRANTED, OF_A_SIGNAL

# When a wait has taken so many seconds, the command tells the user the holder of the lock.
_TELLING_AFTER = 1.0
_RELEASE_TIMEOUT = 2.0


def run_under_lock(parsed: Namespace) -> int:
    """Run the command that was *parsed*; returns the exit code."""
    grace = parsed.lease / 3 if parsed.grace is None else parsed.grace

    def run() -> int:
        with told_in_words():
            return asyncio.run(UnderLock(parsed, grace).run())

    return told_as_json(parsed, run, lock=parsed.name)


class Signals:
    """Cancels the task in which it is made, until there is a command to *pass_to*."""

    def __init__(self) -> None:
        self._task = asyncio.current_task()
        self.received: int | None = None
        """The signal that cancelled the task."""
        self.pass_to: Callable[[int], None] | None = None

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Handle the signals, except those that the parent process ignores (`nohup`): the command ignores them too."""
        loop = asyncio.get_running_loop()
        ours = [each for each in PASSED_ON if signal.getsignal(each) is not signal.SIG_IGN]
        for each in ours:
            loop.add_signal_handler(each, self._receive, each)
        try:
            yield
        finally:
            for each in ours:
                loop.remove_signal_handler(each)

    def _receive(self, number: int) -> None:
        if self.pass_to is not None:
            self.pass_to(number)
        elif self.received is None and self._task is not None:
            self.received = number
            self._task.cancel()


@dataclass(slots=True)
class UnderLock:
    """One command under one lock."""

    parsed: Namespace
    grace: float
    signals: Signals = field(init=False)
    guarded: Guarded | None = None

    async def run(self) -> int:
        """Run the command under the lock; returns the exit code."""
        self.signals = Signals()
        with self.signals.handled():
            try:
                async with connected(options.url_of(self.parsed), self.parsed.primary) as servers:
                    return await self._run_with(servers.client)
            except asyncio.CancelledError:
                if self.signals.received is None:
                    raise
                return OF_A_SIGNAL + self.signals.received

    async def _run_with(self, redis: "Redis | RedisCluster") -> int:
        config = LockConfig(lease=self.parsed.lease, release_timeout=_RELEASE_TIMEOUT, on_event=self._note)
        async with LockClient(redis, config=config) as locks:
            lease = await self._acquired(locks)
            if lease is None:
                self._say("not granted", f"was not granted within {self.parsed.wait:g} s")
                return NOT_GRANTED
            try:
                returned = await self._command(lease)
            finally:
                lost = await self._given_back(lease)
            return self._code(returned, lost)

    async def _acquired(self, locks: LockClient) -> Lease | None:
        owner = PurePath(self.parsed.command[0]).name.encode(errors="replace").decode() or "run"
        wanted = lock_of(locks, self.parsed, owner)
        telling = asyncio.create_task(self._tell_who_holds(wanted)) if sys.stderr.isatty() else None
        try:
            return await wanted.try_acquire(self.parsed.wait)
        finally:
            if telling is not None:
                telling.cancel()

    async def _tell_who_holds(self, wanted: Handle) -> None:
        """Tell the user about the holders, if the wait goes on for a while."""
        await asyncio.sleep(_TELLING_AFTER)
        # If the server cannot be asked, the acquire reports it.
        with suppress(AioLockError):
            holders = [
                f"{short(each.host)} pid {each.pid}" if each.host else short(each.client)
                for each in await holders_of(wanted)
            ]
            self._say("waiting", f"is held by {', '.join(holders) or 'nobody'}; waiting", holders=holders)

    async def _command(self, lease: Lease) -> int:
        """Run the command; returns its return code."""
        early: list[int] = []
        self.signals.pass_to = early.append
        environment = os.environ | {"AIOLOCK_NAME": lease.name, "AIOLOCK_TOKEN": str(lease.token)}
        if self.parsed.hide_url:
            environment.pop(options.VARIABLE, None)
        guarded = await Guarded.start(self.parsed.command, environment, self.grace, lease.remaining)
        try:
            self.guarded = guarded
            # The lease may have been renewed in the meantime, or lost.
            guarded.allow(lease.remaining)
            self.signals.pass_to = guarded.signal
            for number in early:
                guarded.signal(number)
            return await guarded.ended()
        finally:
            await guarded.aclose()

    def _note(self, event: LockEvent) -> None:
        if self.guarded is None:
            return
        if isinstance(event, Renewed):
            self.guarded.allow(event.remaining)
        elif isinstance(event, Lost):
            self.guarded.kill()

    async def _given_back(self, lease: Lease) -> str | None:
        """Release the lock; returns the reason if it was lost before."""
        # If the command had to be stopped, there may be no server to answer.
        most = lease.remaining if self._stopped else None
        try:
            async with asyncio.timeout(most):
                await lease.release()
        except LeaseLostError as error:
            return error.reason
        except TimeoutError:
            return "unreachable"
        except BackendError as error:
            self._say("not given back", f"could not be given back, and is free when its lease ends: {error}")
        return None

    @property
    def _stopped(self) -> bool:
        return self.guarded is not None and self.guarded.stopped

    def _code(self, returned: int, lost: str | None) -> int:
        code = OF_A_SIGNAL - returned if returned < 0 else returned
        if lost is None and not self._stopped:
            return code
        why = "could not be renewed in time" if lost in (None, "unreachable") else f"was lost: {lost}"
        how = f"by signal {-returned}" if returned < 0 else f"with {returned}"
        self._say("lost", f"{why}; the command ended {how}", reason=lost or "unreachable", exit_code=code)
        return LOST

    def _say(self, what: str, words: str, **more: object) -> None:
        name = self.parsed.name
        if self.parsed.json:
            write_error(json.dumps({"lock": name, "event": what, "words": words, **more}))
        else:
            tell(f"lock {name!r} {words}")
