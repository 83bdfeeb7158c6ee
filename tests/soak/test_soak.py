"""The soak itself, for a moment on each topology; and the judge notices promises that are broken on purpose."""

import os
import random
import sys
from pathlib import Path

import pytest

from tests.soak.judge import judge
from tests.soak.run import Options, soak
from tests.soak.sabotage import SIGNS
from tests.soak.settings import Topology
from tests.soak.stages import STAGES


@pytest.fixture
def seed() -> int:
    return int(os.environ.get("AIOLOCK_SEED", random.randrange(2**32)))


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("on", STAGES)
def test_nothing_is_found(on: Topology, seed: int, tmp_path: Path) -> None:
    evidence = soak(Options(on, minutes=0.25, seed=seed, pythons=[sys.executable]), tmp_path)
    findings = judge(evidence)
    if findings:
        pytest.fail("\n".join([f"again with AIOLOCK_SEED={seed}; the journals are in {tmp_path}", *findings]))
    assert evidence.faults


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_broken_promises_are_found(seed: int, tmp_path: Path) -> None:
    options = Options("one", minutes=0, seed=seed, pythons=[sys.executable], sabotage=True)
    findings = judge(soak(options, tmp_path))
    missed = [sign for sign in SIGNS if not any(finding.startswith(sign) for finding in findings)]
    assert not missed, f"again with AIOLOCK_SEED={seed}"
