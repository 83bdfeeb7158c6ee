"""Planted faults: each can be planted, and the simulation finds some of them quickly."""

import pytest

from tests.simulation.planted.fault import PACKAGE, look_for
from tests.simulation.planted.faults import FAULTS

FEW_SEEDS = 20
QUICK = (
    "a release publishes nothing",
    "a writer is granted the lock beside readers",
    "the deadline is reckoned from the reply",
    "the deadline has no margin",
    "a cancelled acquire is not given up",
    "one server of a quorum is a majority",
    "a forked child writes on its parent's connections",
    "a detached reader or writer gets a new token",
)


def test_each_fault_has_one_place() -> None:
    assert len({fault.what for fault in FAULTS}) == len(FAULTS)
    places = {fault.what: (PACKAGE / fault.file).read_text().count(fault.right) for fault in FAULTS}
    assert {what: number for what, number in places.items() if number != 1} == {}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("what", QUICK)
def test_the_simulation_finds_a_fault(what: str) -> None:
    (fault,) = [fault for fault in FAULTS if fault.what == what]
    assert look_for(fault, FEW_SEEDS).kinds
