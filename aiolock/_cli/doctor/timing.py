"""Checks of time: the round trip, the server's clock, and the settings that must fit them."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from time import monotonic, time

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from aiolock._cli.doctor.check import Check
from aiolock._cli.probe import Probe
from aiolock._config import Timing
from aiolock._core.hold import margin

_DURATION = 1.0
# Some hundreds of questions are asked in all, which is no noticeable load.
_PAUSE = 0.005
_OFFSET = 1.0
# A clock that is being corrected moves by less.
_STEADY = 0.01


@dataclass(frozen=True, slots=True)
class Sample:
    """One question for the server's clock: sent at *sent*, answered at *received*, both on the monotonic clock."""

    sent: float
    server: float
    received: float


@dataclass(frozen=True, slots=True)
class Samples:
    """Round trips in seconds, samples of the clock, and the lead of our clock over the monotonic clock."""

    round_trips: Sequence[float]
    clocks: Sequence[Sample]
    ours: float


async def measure(probe: Probe) -> Samples:
    """Ask for a pong and for the time, in turn, for about a second."""
    round_trips: list[float] = []
    clocks: list[Sample] = []
    clock_refused = False
    ours = time() - monotonic()
    end = monotonic() + _DURATION
    while monotonic() < end:
        sent = monotonic()
        await probe.ask("PING")
        round_trips.append(monotonic() - sent)
        if not clock_refused:
            try:
                clocks.append(Sample(monotonic(), await probe.time(), monotonic()))
            except ResponseError:
                clock_refused = True
        await asyncio.sleep(_PAUSE)
    return Samples(round_trips, clocks, ours)


def judge_round_trip(samples: Samples, timing: Timing) -> Check:
    """Whether answers come long before aiolock gives up a connection."""
    ordered = sorted(samples.round_trips)
    middle, high = median(ordered), ordered[math.ceil(0.99 * len(ordered)) - 1]
    patience = timing.renewal_patience
    found = f"median {_short(middle)}, p99 {_short(high)}, of {len(ordered)} pings"
    advice = f"aiolock gives a connection up after {_short(patience)} without an answer: bring them closer together."
    if middle > patience:
        return Check("round-trip", "error", found, advice)
    if high > patience / 2:
        return Check("round-trip", "warning", found, advice)
    return Check("round-trip", "ok", found)


def judge_clock(samples: Samples, timing: Timing) -> Check:
    """
    Whether the server's clock runs at the speed of the monotonic clock, and its distance from ours.

    Each sample bounds the offset from both sides, however slow the answer was; if no offset fits all samples, the clock
    jumped.
    """
    if not samples.clocks:
        return Check("clock", "unknown", "not known: the server refuses TIME", "The scripts need it: allow TIME.")
    least = [sample.server - sample.received for sample in samples.clocks]
    most = [sample.server - sample.sent for sample in samples.clocks]
    jump = max(least) - min(most)
    allowed = margin(timing.lease, timing)
    if jump > _STEADY:
        found = f"jumped by {_short(jump)} or more within {_DURATION:g} s"
        advice = f"Leases end by that clock, with a margin of {_short(allowed)}: let it be slewed, never set."
        return Check("clock", "error" if jump > allowed else "warning", found, advice)
    offset = (max(least) + min(most)) / 2 - samples.ours
    found = f"steady; {_short(abs(offset))} {'ahead of' if offset > 0 else 'behind'} ours"
    if abs(offset) > _OFFSET:
        advice = "aiolock never compares the two clocks, but tokens follow the server's: see which of them is wrong."
        return Check("clock", "note", found, advice)
    return Check("clock", "ok", found)


def judge_lease(timing: Timing) -> Check:
    """The longest stall of the server that holders survive, and the longest for other commands."""
    survived = timing.lease - timing.renew_interval - margin(timing.lease, timing)
    found = (
        f"{timing.lease:g} s, renewed every {timing.renew_interval:.3g} s: holders survive a stall of "
        f"{survived:.3g} s, other calls one of {timing.command_timeout:g} s"
    )
    if survived < timing.command_timeout:
        return Check("lease", "note", found, "If the server may stall for longer than holders survive: a longer lease.")
    return Check("lease", "ok", found)


def judge_client(redis: "Redis", timing: Timing) -> Check:
    """The settings of the `Redis` from the URL; locks use almost none of them."""
    limit = redis.connection_pool.make_connection().socket_timeout  # type: ignore[no-untyped-call]
    found = (
        f"socket_timeout {'none' if limit is None else f'{limit:g} s'}; locks use neither it nor retries: "
        f"an attempt has {_short(timing.renewal_patience)}, a command {timing.command_timeout:g} s"
    )
    if limit is None:
        return Check("client", "note", found, "Your own commands may wait for ever: set socket_timeout.")
    return Check("client", "ok", found)


def _short(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
