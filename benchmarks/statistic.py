"""Percentiles, which the standard library does not have."""

from collections.abc import Sequence
from statistics import median

Spread = tuple[float, float, float]


def percentile(samples: Sequence[float], share: float) -> float:
    """The smallest sample that is not exceeded by *share* of them (nearest rank)."""
    ordered = sorted(samples)
    return ordered[max(0, -(-len(ordered) * round(share * 1000) // 1000) - 1)]


def quantiles(samples: Sequence[float], most: int = 200) -> list[float]:
    """The samples sorted, thinned to *most* evenly spaced ones that include both ends."""
    ordered = sorted(samples)
    if len(ordered) <= most:
        return ordered
    return [ordered[round(place * (len(ordered) - 1) / (most - 1))] for place in range(most)]


def spread(values: Sequence[float]) -> Spread:
    """Least, median and greatest."""
    return min(values), median(values), max(values)
