"""The soak itself, for a moment on each topology; and promises that are broken on purpose are noticed."""

import os
import random
import sys
from pathlib import Path

import pytest

from tests.soak.judge import judge
from tests.soak.run import Options, soak
from tests.soak.sabotage import KINDS, Sabotage
from tests.soak.settings import Topology
from tests.soak.stages import STAGES

SIGNS: dict[Sabotage, str] = {
    "deletes": "overlap",
    "tokens": "token out of order",
    "leaves": "a key without a time to live",
    "stays": "told late",
}


@pytest.fixture
def seed() -> int:
    return int(os.environ.get("AIOLOCK_SEED", random.randrange(2**32)))


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("on", STAGES)
def test_nothing_is_found(on: Topology, seed: int, tmp_path: Path) -> None:
    evidence = soak(Options(on, minutes=0.25, seed=seed, pythons=[sys.executable]), tmp_path)
    findings = judge(evidence)
    assert not findings, f"again with AIOLOCK_SEED={seed}"
    assert evidence.faults


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_broken_promise_is_found(kind: Sabotage, seed: int, tmp_path: Path) -> None:
    options = Options("one", minutes=0.1, seed=seed, pythons=[sys.executable], sabotage=kind)
    findings = judge(soak(options, tmp_path))
    assert any(SIGNS[kind] in finding for finding in findings), (seed, findings)
