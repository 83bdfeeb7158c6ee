"""The figures to reach: ratios of neighbouring runs of one round, or plain values, each with its limit."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.statistic import Spread, spread

Record = dict[str, Any]
OURS = "aiolock"


@dataclass(frozen=True)
class Side:
    """A measure of a peer; *first* picks the run by its first parameter, where a workload has several."""

    peer: str
    measure: str
    first: float | None = None

    def of(self, records: Sequence[Record]) -> float | None:
        """Its value in one round; ``None`` if there was no such run, or one with a problem."""
        for record in records:
            first = next(iter(record["parameters"].values()), None)
            if record["peer"] == self.peer and self.first in (None, first) and not record["problem"]:
                value = record["measures"].get(self.measure)
                return None if value is None else float(value)
        return None


@dataclass(frozen=True)
class Figure:
    """One figure of a workload: *top*, or *top* divided by *bottom*, is at most or at least *limit*."""

    workload: str
    text: str
    top: Side
    limit: float
    bottom: Side | None = None
    at_least: bool = False
    scale: float = 1.0
    unit: str = ""

    @property
    def wanted(self) -> str:
        """The limit in words."""
        return f"{'≥' if self.at_least else '≤'} {number(self.limit)}{self.unit}"

    def value(self, records: Sequence[Record]) -> float | None:
        """Its value in one round."""
        top = self.top.of(records)
        bottom = 1.0 if self.bottom is None else self.bottom.of(records)
        return None if top is None or not bottom else self.scale * top / bottom

    def measured(self, records: Sequence[Record], loop: str) -> Spread | None:
        """Least, median and greatest of all rounds on *loop*; ``None`` if it was not measured."""
        rounds: dict[tuple[int, int], list[Record]] = {}
        for record in records:
            if record["workload"] == self.workload and record["loop"] == loop:
                rounds.setdefault((record.get("session", 0), record["round"]), []).append(record)
        values = [value for each in rounds.values() if (value := self.value(each)) is not None]
        return spread(values) if values else None

    def reached(self, measured: Spread) -> bool:
        """Whether the median is within the limit."""
        return measured[1] >= self.limit if self.at_least else measured[1] <= self.limit


def number(value: float) -> str:
    """Three significant digits, no exponent for what people count."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _ours(measure: str, first: float | None = None) -> Side:
    return Side(OURS, measure, first)


def _ratio(workload: str, text: str, measure: str, peer: str, limit: float, *, at_least: bool = False) -> Figure:
    return Figure(workload, text, _ours(measure), limit, Side(peer, measure), at_least, unit=" ×")


def _requests(workload: str, text: str, peer: str, orders: float, limit: float) -> Figure:
    ours, theirs = (Side(each, "requests_per_second", orders) for each in (peer, "redis-py"))
    return Figure(workload, text, ours, limit, theirs, at_least=True, unit=" ×")


def _of_an_endpoint(workload: str) -> tuple[Figure, ...]:
    return (
        _requests(workload, "requests per second / redis-py's Lock", OURS, 20, 1.2),
        _requests(workload, "the same, all for one order", OURS, 1, 1),
        _requests(workload, 'the same for 20 orders, with release="behind"', "behind", 20, 1.4),
    )


def _of_a_request(workload: str, decorated: str) -> tuple[Figure, ...]:
    return tuple(
        Figure(workload, text, Side(ours, "cpu_per_request"), 1.25, Side(block, "cpu_per_request"), unit=" ×")
        for text, ours, block in (
            (f"processor time with {decorated} / with an `async with`", OURS, "block"),
            ('the same with release="behind"', "behind", "block-behind"),
        )
    )


def _of_several(names: float, limit: float) -> Figure:
    ours, singles = (Side(each, "seconds_per_section", names) for each in (OURS, "one-by-one"))
    return Figure("B12", f"{names:g} locks as one / one by one", ours, limit, singles, unit=" ×")


def _of_tasks(workload: str, text: str, peer: str, tasks: float, limit: float) -> Figure:
    ours, theirs = (Side(each, "seconds_per_section", tasks) for each in (OURS, peer))
    return Figure(workload, text, ours, limit, theirs, unit=" ×")


def _of_counted(text: str, peer: str, tasks: float, limit: float) -> Figure:
    counted, other = (Side(each, "seconds_per_section", tasks) for each in ("counted", peer))
    return Figure("B13", text, counted, limit, other, unit=" ×")


def _of_behind(workload: str, what: str, peer: str, limit: float) -> Figure:
    behind, other = (Side(each, "seconds_per_section") for each in ("behind", peer))
    return Figure(workload, f'the same with release="behind" / {what}', behind, limit, other, unit=" ×")


def _of_telemetry(workload: str) -> Figure:
    telemetry, ours = (Side(each, "seconds_per_section") for each in ("telemetry", OURS))
    return Figure(workload, "time of a section with telemetry / without", telemetry, 1.1, ours, unit=" ×")


def _of_readers(peer: str, tasks: float) -> Figure:
    ours, theirs = (Side(each, "sections_per_second", tasks) for each in (OURS, peer))
    return Figure("B14", f"sections of {tasks:g} tasks per second / {peer}", ours, 1, theirs, at_least=True, unit=" ×")


def _of_a_quorum(text: str, measure: str, peer: str, tasks: float, limit: float, *, at_least: bool = False) -> Figure:
    ours, theirs = (Side(each, measure, tasks) for each in ("quorum", peer))
    return Figure("B15", text, ours, limit, theirs, at_least=at_least, unit=" ×")


_WORK = "server_time_per_section"
_OF_THE_SERVER = (
    ("a lock's commands / Redisson's", "lock-commands", 1.45, "redisson-lock"),
    ("a lock's commands / those of an earlier aiolock", "lock-commands", 0.7, "older-lock-commands"),
    ("a lock / of an earlier aiolock", "aiolock", 0.7, "older-aiolock"),
    ("a fair lock / of an earlier aiolock", "fair", 0.8, "older-fair"),
    ("a read lock / of an earlier aiolock", "read", 0.9, "older-read"),
    ("a write lock / of an earlier aiolock", "write", 0.9, "older-write"),
    ("a permit that expires / of an earlier aiolock", "permit", 0.9, "older-permit"),
    ("a permit that does not / of an earlier aiolock", "counted", 0.9, "older-counted"),
    ("a latch / of an earlier aiolock", "latch", 0.9, "older-latch"),
)


def _of_the_server(workload: str) -> tuple[Figure, ...]:
    return tuple(
        Figure(workload, text, Side(ours, _WORK, 1), limit, Side(theirs, _WORK, 1), unit=" ×")
        for text, ours, limit, theirs in _OF_THE_SERVER
    )


def _of_many_held(lease: float, *, cpu_share: float) -> tuple[Figure, ...]:
    which = f"leases of {lease:g} s: "
    return (
        Figure("B7", f"{which}locks lost", _ours("lost", lease), 0),
        Figure("B7", f"{which}share of one core", _ours("cpu_share", lease), cpu_share, scale=100, unit=" %"),
        Figure("B7", f"{which}memory of each lock", _ours("bytes_per_lock", lease), 6, scale=1e-3, unit=" KB"),
        Figure("B7", f"{which}renewals per batch", _ours("renewals_per_batch", lease), 1, at_least=True),
    )


def _of_before(text: str, peer: str, limit: float) -> Figure:
    ours, earlier = (Side(each, "seconds_per_section") for each in (peer, "older-aiolock"))
    return Figure("B1", text, ours, limit, earlier, unit=" ×")


FIGURES = (
    _of_before("time of a section / of an earlier aiolock", OURS, 0.86),
    _of_before('the same with release="behind"', "behind", 0.57),
    _ratio("B1", "time of a section / two bare EVALSHA", "seconds_per_section", "bare", 0.80),
    _ratio("B1", "time of a section / redis-py's Lock", "seconds_per_section", "redis-py", 0.98),
    _of_behind("B1", "two bare EVALSHA", "bare", 0.55),
    _of_behind("B1", "redis-py's Lock", "redis-py", 0.68),
    Figure(
        "B1",
        'sections per second with release="behind" / Redisson, asynchronous',
        Side("behind", "sections_per_second"),
        1.05,
        Side("redisson-async", "sections_per_second"),
        at_least=True,
        unit=" ×",
    ),
    _of_telemetry("B1"),
    _ratio("B2", "sections per second / redis-py's Lock", "sections_per_second", "redis-py", 4, at_least=True),
    _ratio("B2", "sections per second / pipelined by hand", "sections_per_second", "pipelined", 1.3, at_least=True),
    _ratio("B3", "sections per second / redis-py's Lock", "sections_per_second", "redis-py", 5, at_least=True),
    _ratio("B3", "sections per second / pipelined by hand", "sections_per_second", "pipelined", 1.2, at_least=True),
    Figure("B3", "connections", _ours("connections"), 8),
    _of_telemetry("B3"),
    _ratio("B4", "median / bare chain", "median", "chain", 1.0),
    _ratio("B4", "p99 / bare chain's p99", "p99", "chain", 1.25),
    Figure("B4", "p99 / median", _ours("p99"), 3, _ours("median"), unit=" ×"),
    Figure("B4", "redis-py's Lock / median", Side("redis-py", "median"), 40, _ours("median"), True, unit=" ×"),
    Figure("B4", "median of a fair lock / of a lock", Side("fair", "median"), 1.3, _ours("median"), unit=" ×"),
    _ratio("B5", "time of a section / two bare EVALSHA", "seconds_per_section", "bare", 0.65),
    _of_behind("B5", "two bare EVALSHA", "bare", 0.55),
    Figure("B5", "greatest deviation of a task's share", _ours("share_deviation"), 10, scale=100, unit=" %"),
    Figure(
        "B5",
        "a fair lock's sections / Redisson's fair lock's",
        Side("fair", "sections_per_second"),
        1,
        Side("redisson", "sections_per_second"),
        at_least=True,
        unit=" ×",
    ),
    Figure("B6", "least share of a process / fair share", _ours("least_process"), 0.5, at_least=True),
    Figure("B6", "commands per section (2 + processes)", _ours("commands_per_section"), 10),
    *_of_many_held(30, cpu_share=6),
    *_of_many_held(3, cpu_share=40),
    Figure("B8", "memory of each of 10,000 waiters", _ours("bytes_per_waiter", 10_000), 4, scale=1e-3, unit=" KB"),
    Figure(
        "B8", "hand-off with 10,000 waiters / with 10", _ours("median", 10_000), 1.5, _ours("median", 10), unit=" ×"
    ),
    Figure("B8", "commands of 10,000 waiters while idle", _ours("idle_commands", 10_000), 0),
    Figure("B9", "last tenth of the names / first tenth", _ours("last_tenth"), 1.1, _ours("first_tenth"), unit=" ×"),
    Figure("B9", "memory kept for each name", _ours("bytes_per_name"), 64, unit=" B"),
    *_of_an_endpoint("B10"),
    *_of_an_endpoint("B11"),
    _of_several(2, 0.6),
    _of_several(10, 0.4),
    _of_tasks("B13", "time of a section of one task / a lock", "as-lock", 1, 1.3),
    _of_tasks("B13", "time of a section of one task / py-redis-semaphore", "py-redis-semaphore", 1, 1),
    _of_tasks("B13", "the same of 32 tasks", "py-redis-semaphore", 32, 1),
    _of_counted("time of a section of one task that only counts / a lock", "as-lock", 1, 1.3),
    _of_counted("one that only counts, one task / py-redis-semaphore", "py-redis-semaphore", 1, 1),
    _of_counted("one that only counts, 32 tasks / py-redis-semaphore", "py-redis-semaphore", 32, 1),
    _of_tasks("B14", "time of a section of one task / a lock", "as-lock", 1, 1.3),
    _of_readers("redisson", 100),
    _of_readers("redisson-async", 100),
    _of_a_quorum("time of a section of one task / one server", "seconds_per_section", OURS, 1, 2),
    _of_a_quorum(
        "sections of 100 tasks per second / pottery", "sections_per_second", "pottery-quorum", 100, 5, at_least=True
    ),
    _of_a_quorum("the same / RedissonRedLock", "sections_per_second", "redisson", 100, 1, at_least=True),
    *_of_the_server("B16"),
    *_of_the_server("B17"),
    *_of_a_request("B18", "`lock_for`"),
    *_of_a_request("B19", "`synchronized`"),
)


def lines(records: Sequence[Record], loop: str) -> list[str]:
    """The measured figures, for a terminal."""
    found = []
    for figure in FIGURES:
        if (measured := figure.measured(records, loop)) is not None:
            least, middle, greatest = map(number, measured)
            mark = "reached" if figure.reached(measured) else "NOT REACHED"
            found.append(
                f"{figure.workload} {loop}: {figure.text} {figure.wanted}: "
                f"{middle}{figure.unit} ({least} to {greatest}) {mark}"
            )
    return found
