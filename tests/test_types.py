"""Durations, names and keys: what is accepted, what is refused, and what becomes of it."""

import math
from dataclasses import FrozenInstanceError, fields
from datetime import timedelta
from decimal import Decimal

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


@pytest.mark.parametrize("given", [True, False, "1", b"1", None, 1j, Decimal(1), [1]])
def test_a_duration_of_another_type_is_refused(given: object) -> None:
    with pytest.raises(TypeError, match=r"wait must be seconds \(int or float\) or a timedelta"):
        seconds(given, "wait", zero=True)


@pytest.mark.parametrize(
    "given", [math.nan, math.inf, -math.inf, 1.1e9, pytest.param(10**400, id="huge"), timedelta.max]
)
def test_a_duration_that_is_not_finite_or_too_long_is_refused(given: object) -> None:
    with pytest.raises(ValueError, match="wait must be"):
        seconds(given, "wait", zero=True)


@pytest.mark.parametrize("given", [-1, -0.001, timedelta(seconds=-1)])
def test_a_negative_duration_is_refused(given: object) -> None:
    with pytest.raises(ValueError, match="wait must be zero or more seconds, not"):
        seconds(given, "wait", zero=True)


@pytest.mark.parametrize("given", [0, 0.0, -0.0, timedelta()])
def test_zero_is_accepted_only_where_it_means_something(given: object) -> None:
    assert seconds(given, "wait", zero=True) == 0
    with pytest.raises(ValueError, match="renew_interval must be more than zero seconds"):
        seconds(given, "renew_interval")


@pytest.mark.parametrize("given", [0.0009, 1e-9, timedelta(microseconds=999)])
def test_a_lease_shorter_than_redis_can_count_is_refused(given: object) -> None:
    with pytest.raises(ValueError, match="lease must be at least one millisecond"):
        lease_seconds(given)


def test_the_shortest_lease_is_one_millisecond() -> None:
    assert milliseconds(lease_seconds(0.001)) == 1


@pytest.mark.parametrize(("given", "expected"), [(0.0015, 2), (1, 1_000), (29.9999, 30_000), (1e9, 10**12)])
def test_milliseconds_are_whole(given: float, expected: int) -> None:
    assert milliseconds(given) == expected
    assert isinstance(milliseconds(given), int)


@pytest.mark.parametrize("given", ["a", "orders:42", "with space", "größe", "锁", "{tag}", "\n", "0"])
def test_any_text_is_a_name(given: str) -> None:
    assert text(given, "name") == given


@pytest.mark.parametrize("given", [None, b"bytes", 42, ["a"]])
def test_a_name_of_another_type_is_refused(given: object) -> None:
    with pytest.raises(TypeError, match="name must be a str, not"):
        text(given, "name")


def test_an_empty_name_is_refused() -> None:
    with pytest.raises(ValueError, match="name must not be empty"):
        text("", "name")


def test_a_name_that_redis_could_not_be_told_is_refused() -> None:
    with pytest.raises(ValueError, match="name cannot be encoded as UTF-8"):
        text("\udc80", "name")


@pytest.mark.parametrize(
    ("name", "prefix", "lock", "tag"),
    [
        ("orders", "", "orders", "{orders}"),
        ("orders", "app:", "app:orders", "{app:orders}"),
        ("{user}:1", "", "{user}:1", "{user}:1"),
        ("1", "{shop}:", "{shop}:1", "{shop}:1"),
        ("odd{", "", "odd{", "odd{"),
    ],
)
def test_keys_follow_redissons_rule_of_braces(name: str, prefix: str, lock: str, tag: str) -> None:
    keys = LockKeys.of(name, prefix)
    assert keys == LockKeys(
        name,
        lock,
        f"aiolock_token:{tag}",
        f"redisson_lock__channel:{tag}",
        (lock, f"aiolock_token:{tag}"),
        f"lock {lock}",
    )


@pytest.mark.parametrize("record", [Holder("c", "1", 1, 2.0), LockStatistics(), ClientStatistics()])
def test_records_are_frozen(record: Holder | LockStatistics | ClientStatistics) -> None:
    with pytest.raises(FrozenInstanceError):
        setattr(record, fields(record)[0].name, 3)
