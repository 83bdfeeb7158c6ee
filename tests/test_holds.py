"""Holds: what a client remembers of the locks it lost, and for how long."""

from itertools import count

import pytest

import aiolock._holds
from aiolock._holds import Holds
from aiolock._lease import Hold
from aiolock._scripts import LOCK
from aiolock._types import Claim, LockKeys

ids = count(1)


def hold_of(owner: str, name: str) -> Hold:
    return Hold(Claim(LockKeys.of(name, ""), LOCK, owner, str(next(ids))), 1)


def lost_by(holds: Holds, owner: str, *names: str) -> list[Hold]:
    lost = [hold_of(owner, name) for name in names]
    for hold in lost:
        holds.remember_lost(hold)
    return lost


def is_empty(holds: Holds) -> bool:
    return not any((holds._by_owner, holds._by_key, holds._lost, holds._lost_by_owner))


def test_a_loss_is_remembered_until_it_is_given_back() -> None:
    holds = Holds()
    [first, second] = lost_by(holds, "task", "a", "b")
    assert (holds.lost("task", "a"), holds.lost("task", "b")) == (first, second)
    assert holds.lost("another", "a") is None
    holds.forget_lost(first)
    assert (holds.lost("task", "a"), holds.lost("task", "b")) == (None, second)
    holds.forget_lost(second)
    assert is_empty(holds)


def test_a_grant_makes_an_earlier_loss_of_its_owner_forgotten() -> None:
    holds = Holds()
    lost_by(holds, "task", "a")
    again = hold_of("task", "a")
    holds.add(again)
    assert holds.lost("task", "a") is None
    holds.remove(again)
    assert is_empty(holds)


def test_giving_an_earlier_loss_back_leaves_a_later_one_remembered() -> None:
    holds = Holds()
    [earlier] = lost_by(holds, "task", "a")
    [later] = lost_by(holds, "task", "a")
    holds.forget_lost(earlier)
    assert holds.lost("task", "a") is later


def test_what_an_owner_lost_that_is_no_more_is_forgotten() -> None:
    holds = Holds()
    lost_by(holds, "ended", "a", "b")
    [theirs] = lost_by(holds, "another", "a")
    holds.forget_lost_by("ended")
    holds.forget_lost_by("unknown")
    assert holds.lost("ended", "a") is holds.lost("ended", "b") is None
    assert holds.lost("another", "a") is theirs
    holds.forget_lost_by("another")
    assert is_empty(holds)


def test_the_oldest_losses_are_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aiolock._holds, "REMEMBERED_LOSSES", 3)
    holds = Holds()
    for number in range(10):
        lost_by(holds, f"task {number}", "a")
    assert [number for number in range(10) if holds.lost(f"task {number}", "a")] == [7, 8, 9]
    assert len(holds._lost_by_owner) == 3
