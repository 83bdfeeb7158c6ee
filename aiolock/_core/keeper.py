"""What a hold needs of the index that keeps it."""

import asyncio
from collections.abc import Sized
from typing import Protocol, TypeVar

from aiolock._backend import Call
from aiolock._config import Timing
from aiolock._core.commands import Commands
from aiolock._core.report import Reporter
from aiolock._scripts.replies import Changed

H_contra = TypeVar("H_contra", contravariant=True)


class Keeper(Protocol[H_contra]):
    """The index that keeps the holds of a client, and the parts that they share."""

    commands: Commands
    report: Reporter
    timing: Timing
    patient_until: float | None
    """While the client closes: the time until which no rollback is cancelled a second time (monotonic clock)."""
    body_ended: asyncio.Event | None
    """Set when a body of any hold has ended; closing waits for it."""

    @property
    def entries(self) -> Sized:
        """The names in use, each of which may have a hold."""

    def ended(self, hold: H_contra) -> None:
        """Note that *hold* is neither LIVE nor UNWINDING any more."""

    def given_back(self, hold: H_contra, release: Call[Changed], in_a_row: int, *, behind: bool) -> None:
        """Note that *release* has ended *hold*, after *in_a_row* hand-offs: a waiter's acquire may be sent along."""

    def lost(self, hold: H_contra) -> None:
        """Note that *hold* is lost: remember it for its owner's late release, and let waiters try."""

    def lost_given_back(self, hold: H_contra) -> None:
        """Note that the owner of *hold*, which is lost, has given all its leases back."""
