"""
The metrics of all clients that report to one provider of meters.

Numbers are counted here as plain integers and reported when a reader asks: recording a duration in the SDK takes a
fifth of the time of a whole critical section.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from time import monotonic
from typing import get_args
from weakref import WeakKeyDictionary

from opentelemetry.metrics import CallbackOptions, Histogram, Meter, MeterProvider, Observation, get_meter

from aiolock import ClientStatistics, LockKind, LossReason, __version__
from aiolock._process import Lineage

KIND, GROUP, OUTCOME = "aiolock.lock.kind", "aiolock.lock.group", "aiolock.outcome"
REASON, ERROR = "aiolock.loss.reason", "error.type"
SCOPE = "aiolock"

# The buckets of db.client.operation.duration.
_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10)
# Durations of holds that are recorded in a second.
_MOST_HOLDS = 100
# Parts of a second with an equal share of these, so that not only the first holds of a second are recorded.
_SHARES = 4
# Seconds for which the sums of all clients' numbers are used again.
_FRESH = 0.1

# The numbers that the clients count: the metric, its unit, its description, and the field of `ClientStatistics`.
_NOW = (
    ("aiolock.held.count", "{lock}", "Locks and permits that are held now", "held"),
    ("aiolock.waiting.count", "{acquire}", "Acquires that wait in line now", "parked"),
    ("aiolock.pending.count", "{command}", "Commands that wait for their reply now", "pending"),
    ("aiolock.connection.count", "{connection}", "Connections to Redis that are open now", "connections"),
)
_SO_FAR = (
    ("aiolock.commands", "{command}", "Script calls written", "commands"),
    ("aiolock.batches", "{batch}", "Writes of script calls", "batches"),
    ("aiolock.renewals", "{renewal}", "Renewals acknowledged", "renewals"),
    ("aiolock.renewals_by_thread", "{renewal}", "Renewals of blocked event loops, by threads", "renewals_by_thread"),
    ("aiolock.hand_offs", "{hand_off}", "Times a release sent the next local waiter's acquire along", "hand_offs"),
)

Statistics = Callable[[], ClientStatistics]
# Attributes; those without a value are left out.
Key = tuple[tuple[str, str | None], ...]


class Count:
    """A number that grows."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number: int = 0


class Tally:
    """A number for each combination of attributes; a reader may ask for them in any thread."""

    def __init__(self, meter: Meter, name: str, unit: str, description: str) -> None:
        self._counts: dict[Key, Count] = {}
        meter.create_observable_counter(name, [self._observe], unit, description)

    def of(self, attributes: Key) -> Count:
        """The count for *attributes*; it is reported from now on, even at zero, so that alerts see it grow."""
        return self._counts.setdefault(attributes, Count())

    def add(self, attributes: Key) -> None:
        self.of(attributes).number += 1

    def _observe(self, _: CallbackOptions) -> Iterable[Observation]:
        return [Observation(count.number, attributes_of(*key)) for key, count in list(self._counts.items())]


class Clients:
    """The sums over all clients: the numbers of running ones, and the totals of closed ones."""

    def __init__(self, meter: Meter) -> None:
        # After a fork, the parent's clients are not counted.
        self._running: dict[tuple[int, str], Statistics] = {}
        self._closed: dict[str, int] = {}
        self._sums: Mapping[str, int] = {}
        self._summed_at = -_FRESH
        for name, unit, description, number in _NOW:
            meter.create_observable_up_down_counter(name, [self._teller(number)], unit, description)
        for name, unit, description, number in _SO_FAR:
            meter.create_observable_counter(name, [self._teller(number)], unit, description)

    def started(self, client: str, statistics: Statistics) -> None:
        self._running[Lineage.forks, client] = statistics

    def closed(self, client: str) -> None:
        if (statistics := self._running.pop((Lineage.forks, client), None)) is not None:
            last = asdict(statistics())
            for _, _, _, number in _SO_FAR:
                self._closed[number] = self._closed.get(number, 0) + last[number]

    def _teller(self, number: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def tell(_: CallbackOptions) -> Iterable[Observation]:
            if monotonic() >= self._summed_at + _FRESH:
                self._sum()
            return [Observation(self._sums.get(number, 0))]

        return tell

    def _sum(self) -> None:
        sums = dict(self._closed)
        try:
            for statistics in [each for (forks, _), each in list(self._running.items()) if forks == Lineage.forks]:
                for number, value in asdict(statistics()).items():
                    sums[number] = sums.get(number, 0) + value
        except RuntimeError:
            # The loop changed a dict meanwhile: the sums stay as they were.
            return
        self._sums, self._summed_at = sums, monotonic()


class Instruments:
    """All instruments of one meter."""

    def __init__(self, meter: Meter) -> None:
        self.clients = Clients(meter)
        self.acquires = Tally(meter, "aiolock.acquires", "{acquire}", "Acquires that ended, by outcome")
        self.contentions = Tally(meter, "aiolock.contentions", "{acquire}", "Acquires that found the lock taken")
        self.losses = Tally(meter, "aiolock.losses", "{lock}", "Holds that were lost unexpectedly")
        self.bypasses = Tally(meter, "aiolock.bypasses", "{run}", "Runs without their lock, because Redis failed")
        self.late_renewals = Tally(meter, "aiolock.late_renewals", "{renewal}", "Renewals found to be late")
        self._waits = _durations(meter, "aiolock.wait.duration", "Time of acquires that had to wait")
        self._holds = _durations(meter, "aiolock.hold.duration", "Time for which a lock was held")
        # The number of holds that may be recorded until `_until`.
        self._spare = 0
        self._until = monotonic()

    def begin(self, kind: LockKind, group: str | None) -> Count:
        """
        Count the first acquire of that *kind* and *group*; returns the counter of granted acquires.

        From now on bypasses, contentions, late renewals and losses of that kind and group are reported, at zero.
        """
        who = ((KIND, kind), (GROUP, group))
        for tally in (self.bypasses, self.contentions, self.late_renewals):
            tally.of(who)
        for reason in get_args(LossReason):
            self.losses.of((*who, (REASON, reason)))
        return self.acquires.of((*who, (OUTCOME, "acquired")))

    def waited(self, duration: float, kind: LockKind, group: str | None, outcome: str) -> None:
        self._waits.record(duration, attributes_of((KIND, kind), (GROUP, group), (OUTCOME, outcome)))

    def records_holds(self) -> bool:
        """Whether a hold that ends now is recorded."""
        if self._spare == 0 and (now := monotonic()) >= self._until:
            self._spare, self._until = _MOST_HOLDS // _SHARES, now + 1 / _SHARES
        return self._spare > 0

    def held(self, duration: float, kind: LockKind, group: str | None, outcome: str) -> None:
        """Record the duration of a hold, unless the share of this part of the second is used up."""
        if self.records_holds():
            self._spare -= 1
            self._holds.record(duration, attributes_of((KIND, kind), (GROUP, group), (OUTCOME, outcome)))


def _durations(meter: Meter, name: str, description: str) -> Histogram:
    return meter.create_histogram(name, "s", description, explicit_bucket_boundaries_advisory=_BUCKETS)


def attributes_of(*attributes: tuple[str, str | None]) -> dict[str, str]:
    """The *attributes* that have a value."""
    return {name: value for name, value in attributes if value is not None}


# By provider, because each may have only one set of instruments; the process's own meter has its own.
_instruments: "WeakKeyDictionary[MeterProvider, Instruments]" = WeakKeyDictionary()
_global: list[Instruments] = []


def instruments_of(provider: MeterProvider | None) -> Instruments:
    """The instruments of *provider*; ``None`` means the provider of the process, which may be set later."""
    if provider is not None:
        if provider not in _instruments:
            _instruments[provider] = Instruments(provider.get_meter(SCOPE, __version__))
        return _instruments[provider]
    if not _global:
        _global.append(Instruments(get_meter(SCOPE, __version__)))
    return _global[0]
