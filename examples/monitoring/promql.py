"""As much of PromQL as the dashboard and the alerts are written in, over samples of a single process."""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]

_TOKEN = re.compile(r'\s*([A-Za-z_]\w*|[\d.]+|"[^"]*"|=~|!=|\[[^\]]*\]|[(){},=/>])')


@dataclass(frozen=True)
class Sample:
    """Every number at some time, by its name and labels."""

    time: float
    numbers: dict[tuple[str, Labels], float]


class Query:
    """One expression; *window* is the length in seconds of every range."""

    def __init__(self, text: str, samples: Sequence[Sample], window: float) -> None:
        self._tokens = [token for token in _TOKEN.findall(text) if token]
        self._text = text
        self._samples = samples
        self._window = window
        # The next token and the sample that is looked at have these numbers.
        self._at = 0
        self._now = 0

    def at(self, sample: int) -> Vector:
        """The value at that sample; for a comparison, the value that is compared."""
        self._at, self._now = 0, sample
        value = self._quotient()
        if self._take_if(">"):
            self._take()
        if self._at != len(self._tokens):
            raise ValueError(f"not understood from {self._tokens[self._at]!r} on: {self._text}")
        return value

    def _quotient(self) -> Vector:
        value = self._operand()
        if self._take_if("/"):
            below = self._operand()
            value = {labels: number / below[labels] for labels, number in value.items() if below.get(labels)}
        return value

    def _operand(self) -> Vector:
        name = self._take()
        if name == "sum":
            return self._sum()
        if name in {"rate", "increase"}:
            return self._growth(per_second=name == "rate")
        if name == "histogram_quantile":
            self._take("(")
            share = float(self._take())
            self._take(",")
            buckets = self._quotient()
            self._take(")")
            return _quantiles(share, buckets)
        return self._select(name, self._now)

    def _sum(self) -> Vector:
        by: set[str] = set()
        if self._take_if("by"):
            self._take("(")
            while not self._take_if(")"):
                by.add(self._take())
                self._take_if(",")
        self._take("(")
        value = self._quotient()
        self._take(")")
        sums: dict[Labels, float] = defaultdict(float)
        for labels, number in value.items():
            sums[frozenset(pair for pair in labels if pair[0] in by)] += number
        return dict(sums)

    def _growth(self, *, per_second: bool) -> Vector:
        self._take("(")
        begin, now = self._at, self._now
        start = max(0, next(i for i, each in enumerate(self._samples) if each.time >= self._time() - self._window))
        name = self._take()
        last = self._select(name, now)
        self._at = begin + 1
        first = self._select(name, start)
        if not self._take().startswith("["):
            raise ValueError(f"a range is missing: {self._text}")
        self._take(")")
        seconds = (self._samples[now].time - self._samples[start].time) or self._window
        return {each: (last[each] - first.get(each, 0)) / (seconds if per_second else 1) for each in last}

    def _select(self, name: str, sample: int) -> Vector:
        wanted = []
        if self._take_if("{"):
            while not self._take_if("}"):
                wanted.append((self._take(), self._take(), self._take().strip('"')))
                self._take_if(",")
        found = self._samples[sample].numbers.items()
        return {labels: number for (each, labels), number in found if each == name and _fits(labels, wanted)}

    def _time(self) -> float:
        return self._samples[self._now].time

    def _take(self, wanted: str | None = None) -> str:
        token = self._tokens[self._at] if self._at < len(self._tokens) else ""
        if token == "" or wanted not in {None, token}:
            raise ValueError(f"{wanted or 'more'} is missing: {self._text}")
        self._at += 1
        return token

    def _take_if(self, wanted: str) -> bool:
        found = self._at < len(self._tokens) and self._tokens[self._at] == wanted
        self._at += found
        return found


def _fits(labels: Labels, wanted: Sequence[tuple[str, str, str]]) -> bool:
    """Whether a series has the *wanted* labels; that of the job is Prometheus's own."""
    values = dict(labels)
    return all((values.get(name) == value) is (how == "=") for name, how, value in wanted if name != "job")


def _quantiles(share: float, buckets: Vector) -> Vector:
    """The quantiles as Prometheus computes them: as if the values of a bucket lay evenly in it."""
    groups: dict[Labels, list[tuple[float, float]]] = defaultdict(list)
    for labels, count in buckets.items():
        rest = frozenset(pair for pair in labels if pair[0] != "le")
        groups[rest].append((float(dict(labels)["le"]), count))
    return {rest: value for rest, found in groups.items() if (value := _quantile(share, sorted(found))) is not None}


def _quantile(share: float, buckets: Sequence[tuple[float, float]]) -> float | None:
    total, below, lower = buckets[-1][1], 0.0, 0.0
    if not total:
        return None
    for upper, count in buckets:
        if count >= share * total:
            if upper == float("inf"):
                return lower
            return lower + (upper - lower) * (share * total - below) / (count - below)
        below, lower = count, upper
    return lower
