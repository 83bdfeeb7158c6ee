"""Durations, names and keys: which values are accepted, which are refused, and what is made of them."""

from dataclasses import FrozenInstanceError, fields
from datetime import timedelta

import pytest

from aiolock import ClientStatistics, Holder, LockStatistics
from aiolock._keys import LockKeys
from aiolock._types import LONGEST, lease_seconds, milliseconds, seconds, text


@pytest.mark.parametrize(
    ("given", "expected"),
    [(2, 2.0), (0.25, 0.25), (timedelta(minutes=1, milliseconds=5), 60.005), (LONGEST, LONGEST), (10**9, 1e9)],
)
def test_a_duration_is_seconds_or_a_timedelta(given: object, expected: float) -> None:
    accepted = seconds(given, "wait")
    assert accepted == expected
    assert type(accepted) is float


def test_the_shortest_lease_is_one_millisecond() -> None:
    assert milliseconds(lease_seconds(0.001)) == 1


@pytest.mark.parametrize(("given", "expected"), [(0.0015, 2), (1, 1_000), (29.9999, 30_000), (1e9, 10**12)])
def test_milliseconds_are_whole(given: float, expected: int) -> None:
    assert milliseconds(given) == expected
    assert isinstance(milliseconds(given), int)


@pytest.mark.parametrize("given", ["a", "orders:42", "with space", "größe", "锁", "{tag}", "\n", "0"])
def test_any_text_is_a_name(given: str) -> None:
    assert text(given, "name") == given


@pytest.mark.parametrize(
    ("name", "prefix", "lock", "tag", "tokens"),
    [
        ("orders", "", "orders", "{orders}", "aiolock_token:{orders}"),
        ("orders", "app:", "app:orders", "{app:orders}", "aiolock_token:{app:orders}"),
        ("{user}:1", "", "{user}:1", "{user}:1", "aiolock_token::{user}:1"),
        ("1", "{shop}:", "{shop}:1", "{shop}:1", "aiolock_token::{shop}:1"),
        ("odd{", "", "odd{", "odd{", "aiolock_token::odd{"),
    ],
)
def test_keys_follow_redissons_rule_of_braces(name: str, prefix: str, lock: str, tag: str, tokens: str) -> None:
    keys = LockKeys.of(name, prefix)
    assert keys == LockKeys(
        name,
        lock,
        tokens,
        f"redisson_lock__channel:{tag}",
        (lock, tokens),
        f"lock {lock}",
        other=f"fair {lock}",
    )


@pytest.mark.parametrize("record", [Holder("c", "1", 1, 2.0), LockStatistics(), ClientStatistics()])
def test_records_are_frozen(record: Holder | LockStatistics | ClientStatistics) -> None:
    with pytest.raises(FrozenInstanceError):
        setattr(record, fields(record)[0].name, 3)
