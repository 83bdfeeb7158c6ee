"""The story: all is well, a holder is killed, one is paused past its lease, one is cancelled."""

import asyncio
import signal
from time import monotonic

from aiolock import AsyncRLock
from examples.demo.protocol import Event
from examples.demo.screen import Screen
from examples.demo.team import Team
from examples.demo.verdict import Fault, Faults

# Seconds of ordinary work between two faults.
_CALM = 1.2
# Seconds after which an order that had no effect counts as failed.
_PATIENCE = 6.0


class Story:
    """Tells the story once; *lock* is the workers' lock, to ask about, *lease* their lease in seconds."""

    def __init__(self, team: Team, screen: Screen, lock: AsyncRLock, lease: float) -> None:
        self.faults = Faults()
        self._team = team
        self._screen = screen
        self._lock = lock
        self._lease = lease

    async def tell(self) -> None:
        """Play every part; a fault that did not come about stays ``None``."""
        self._screen.title("1. All is well")
        self._screen.say("One holds the lock, the others wait; a release hands it on.")
        await asyncio.sleep(2 * _CALM)
        for title, part in (
            ("2. A holder is killed", self._kill),
            ("3. A holder is paused past its lease", self._pause),
            ("4. A holder is cancelled", self._cancel),
        ):
            self._screen.title(title)
            try:
                await part()
                await asyncio.sleep(_CALM)
            except TimeoutError:
                self._screen.say("That did not come about in time.", "bold red")

    async def _kill(self) -> None:
        hold = await self._team.after_order("2", "toil", "toils", _PATIENCE)
        self._screen.say(f"Task {hold.who} has a long job. Its lease is {self._lease:g} s, and renewed as it works ...")
        await asyncio.sleep(1.25 * self._lease)
        await self._say_who_holds()
        self._screen.say(f"SIGKILL to worker 2, in its turn for {monotonic() - hold.at:.1f} s now.", "bold red")
        killed_at = monotonic()
        await self._team.kill("2")
        self.faults.killed = Fault(hold.who, hold.token, killed_at)
        self._screen.say("Nobody renews its lease any more. Redis ends it by itself:")
        await self._say_recovery(self.faults.killed, but="2")

    async def _say_who_holds(self) -> None:
        holder = await self._lock.holder()
        if holder is not None:
            self._screen.say(
                f'lock.holder() says: "{holder.client_name}", pid {holder.pid}, {holder.remaining:.1f} s left.'
            )

    async def _pause(self) -> None:
        frozen = await self._team.after_order("3", "freeze", "freezes", _PATIENCE)
        self._team.condition["3"] = "frozen"
        self.faults.paused = Fault(frozen.who, frozen.token, frozen.at)
        self._screen.say(
            f"SIGSTOP to worker 3, at the worst moment: task {frozen.who} has checked its lease and is about to write. "
            "It could be a paused VM, or a long garbage collection.",
            "bold magenta",
        )
        try:
            await self._say_recovery(self.faults.paused, but="3")
            # Until the file has seen a later token it cannot know that the token of worker 3 is old.
            await self._team.until(lambda: self._team.timeline.written > frozen.token, _PATIENCE)
            await asyncio.sleep(max(0.0, frozen.at + 1.3 * self._lease - monotonic()))
        finally:
            late = await self._wake(frozen)
        if late.what == "refused":
            self._screen.say(f"REFUSED by the file: token {late.token} is older than {late.note}.", "bold green")
        else:
            self._screen.say(f"It {late.what}, and was not refused.", "bold red")

    async def _wake(self, frozen: Event) -> Event:
        """Let worker 3 go on; returns the event that tells what became of its write."""
        start = len(self._team.events)
        self._screen.say("SIGCONT: worker 3 goes on where it was, and writes a balance that is long outdated.")
        del self._team.condition["3"]
        self._team.signal("3", signal.SIGCONT)
        ends = ("refused", "wrote", "failed", "cancelled")
        return await self._team.event(lambda event: event.who == frozen.who and event.what in ends, _PATIENCE, start)

    async def _cancel(self) -> None:
        hold = await self._team.after_order("4", "toil", "toils", _PATIENCE)
        self._screen.say(f"Task {hold.who} has a long job ...")
        await asyncio.sleep(0.4 * self._lease)
        self._screen.say(f"task.cancel() for {hold.who}, between its read and its write.", "bold yellow")
        fault = Fault(hold.who, hold.token, monotonic())
        await self._team.after_order("4", "cancel", "cancelled", _PATIENCE)
        self.faults.cancelled = fault
        self._screen.say("`async with` gave the lock back on the way out; no need to wait for the lease:")
        await self._say_recovery(fault, but="")

    async def _say_recovery(self, fault: Fault, but: str) -> None:
        """Wait until all tasks that waited at the time of *fault* have had their turn, except worker *but*."""
        timeline = self._team.timeline
        await self._team.until(lambda: timeline.recovered(fault.at, but), self._lease + _PATIENCE)
        recovery = timeline.recovery(fault.at, but)
        assert recovery is not None
        self._screen.say(
            f"{recovery.next_who} had it after {recovery.first:.3f} s; "
            f"of the {recovery.waiters} who waited for it, none did for longer than {recovery.longest:.3f} s.",
            "green",
        )
