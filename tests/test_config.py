"""LockConfig: its defaults, what it refuses, and the durations worked out from it."""

import asyncio
import math
import re
from dataclasses import FrozenInstanceError, fields
from datetime import timedelta
from math import inf
from typing import Any

import pytest

from aiolock import LockConfig, LockEvent
from aiolock._config import Timing
from aiolock._core.hold import margin


class Recorder:
    """A hook that nobody would await."""

    async def __call__(self, event: LockEvent) -> None:
        raise AssertionError


def test_the_defaults() -> None:
    assert {field.name: getattr(LockConfig(), field.name) for field in fields(LockConfig)} == {
        "prefix": "",
        "lease": 30.0,
        "renew_interval": None,
        "max_hold": None,
        "max_stall": None,
        "drift": None,
        "token_retention": 3600.0,
        "release_timeout": 5.0,
        "release": "answered",
        "command_timeout": 5.0,
        "replicas": None,
        "replicas_timeout": 1.0,
        "client_name": None,
        "on_event": None,
        "telemetry": None,
    }


def test_it_is_keyword_only_and_frozen() -> None:
    with pytest.raises(TypeError):
        LockConfig("prefix")  # type: ignore[call-arg]
    with pytest.raises(FrozenInstanceError):
        LockConfig().lease = 1  # type: ignore[misc]


DURATIONS = [
    *("lease", "renew_interval", "drift", "token_retention", "release_timeout", "command_timeout", "replicas_timeout")
]


@pytest.mark.parametrize("setting", DURATIONS)
def test_a_duration_that_cannot_work_is_refused_by_name(setting: str) -> None:
    for value in ("30", True, b"1", [1]):
        with pytest.raises(TypeError, match=f"^{setting} must be seconds .*, not {re.escape(repr(value))}"):
            LockConfig(**{setting: value})  # type: ignore[arg-type]
    for number in (0, -1, math.nan, math.inf, timedelta(0), 1e10):
        with pytest.raises(ValueError, match=f"^{setting} must be"):
            LockConfig(**{setting: number})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lease": 0.029}, "lease must be at least 0.03 s"),
        ({"prefix": "aiolock_token:"}, "prefix 'aiolock_token:' would make keys that are aiolock's own"),
        ({"prefix": "aiolock_mark:x:"}, "prefix 'aiolock_mark:x:' would make"),
        ({"lease": 10, "renew_interval": 10}, "renew_interval must be at most 5 s"),
        ({"renew_interval": 0.0099}, "renew_interval must be at least 0.01 s, not 0.0099"),
        ({"lease": 10, "drift": 11}, "drift must be at most 2.5 s"),
        ({"replicas": 1, "replicas_timeout": 2.6}, "replicas_timeout must be at most 2.5 s, half the command timeout"),
        (
            {"lease": 9, "replicas": "all", "replicas_timeout": 2.4},
            "replicas_timeout must be at most 2.25 s, a quarter",
        ),
        ({"lease": 10, "max_hold": 9.9}, "max_hold must be at least the lease, 10 s, not 9.9"),
        ({"lease": 10, "max_stall": 9.9}, "max_stall must be at least the lease, 10 s, or 0, not 9.9"),
        ({"token_retention": 59}, "token_retention must be at least 60 s, not 59"),
        ({"release_timeout": 31}, "release_timeout must be at most 30 s, not 31"),
        ({"command_timeout": timedelta(minutes=1)}, "command_timeout must be at most 30 s"),
        ({"client_name": ""}, "client_name must not be empty"),
        ({"client_name": "two words"}, "client_name must be printable ASCII without spaces"),
        ({"client_name": "one\nline"}, "client_name must be printable ASCII without spaces"),
        ({"client_name": "gr\u00fcn"}, "client_name must be printable ASCII without spaces"),
        ({"client_name": "\x7f"}, "client_name must be printable ASCII without spaces"),
        ({"prefix": "\ud800"}, "prefix cannot be encoded as UTF-8"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LockConfig(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"prefix": None}, "prefix must be a str, not None"),
        ({"prefix": b"app:"}, "prefix must be a str, not b'app:'"),
        ({"client_name": 7}, "client_name must be a str, not 7"),
        ({"on_event": "print"}, "on_event must be a plain function, not 'print'"),
        ({"on_event": asyncio.sleep}, "on_event must be a plain function, not <function sleep"),
        ({"on_event": Recorder()}, "on_event must be a plain function, not <.*Recorder object"),
    ],
)
def test_settings_of_another_type_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        LockConfig(**settings)


def test_the_limits_themselves_are_accepted() -> None:
    LockConfig(lease=0.03, token_retention=60, release_timeout=30, command_timeout=30)
    LockConfig(lease=10, renew_interval=5, drift=2.5, max_hold=10, max_stall=10)
    LockConfig(lease=10, replicas=1, replicas_timeout=2.5)
    LockConfig(lease=0.03, renew_interval=0.01)
    LockConfig(replicas=1000)
    LockConfig(command_timeout=2, replicas="all", replicas_timeout=1)
    # Where no replicas are asked, the time that they have does not matter.
    LockConfig(command_timeout=0.1)
    LockConfig(client_name="!~")


def test_durations_become_seconds() -> None:
    config = LockConfig(
        lease=timedelta(minutes=1), renew_interval=timedelta(seconds=5), drift=1, release_timeout=timedelta(seconds=2)
    )
    assert Timing.of(config) == Timing(
        lease=60.0,
        renew_interval=5.0,
        max_hold=inf,
        max_stall=0.0,
        drift=1.0,
        token_retention=3600.0,
        release_timeout=2.0,
        command_timeout=5.0,
        replicas=0,
        replicas_timeout=1.0,
        longest_lease=inf,
    )


def test_replicas_are_a_number_or_all() -> None:
    assert Timing.of(LockConfig(replicas=3)).replicas == 3
    assert Timing.of(LockConfig(replicas="all")).replicas is None
    for wrong in (0, -1, 1001, 10**30):
        with pytest.raises(ValueError, match="replicas must be 1 to 1000"):
            LockConfig(replicas=wrong)
    for odd in (True, 1.0, "some"):
        with pytest.raises(TypeError, match="replicas must be an int"):
            LockConfig(replicas=odd)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"replicas_timeout must be at most 2\.5 s"):
        LockConfig(lease=10, replicas=1, replicas_timeout=3)


def test_renewals_are_due_at_a_third_of_the_lease() -> None:
    assert Timing.of(LockConfig(lease=9)).renew_interval == 3.0


@pytest.mark.parametrize(
    ("settings", "lease", "names", "expected"),
    [
        # The drift is a hundredth of the lease and 10 ms.
        ({}, 30.0, 1, 0.31),
        ({}, 1.0, 1, 0.02),
        # It is never more than a quarter of the lease.
        ({}, 0.02, 1, 0.005),
        ({"drift": 2}, 30.0, 1, 2.0),
        ({"drift": 2}, 4.0, 1, 1.0),
        # The holders of many names are told one after another.
        ({}, 3.0, 1_000, 0.3),
        ({}, 30.0, 10_000, 3.0),
        ({"drift": 2}, 30.0, 1_000, 2.0),
        ({}, 3.0, 10_000, 0.75),
    ],
)
def test_a_lease_counts_as_over_a_margin_before_its_end(
    settings: dict[str, Any], lease: float, names: int, expected: float
) -> None:
    assert margin(lease, Timing.of(LockConfig(**settings)), names) == pytest.approx(expected)
