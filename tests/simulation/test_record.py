"""The track record: each fault of another library is found by the judge, and aiolock does not have it."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LEAST = 12


def record(*names: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tests.simulation.record", *names]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.timeout(120)
def test_the_judge_finds_each_fault_and_none_of_it_in_aiolock() -> None:
    run = record()
    assert run.returncode == 0, run.stdout + run.stderr
    rows = run.stdout.splitlines()
    assert len(rows) >= LEAST
    assert all(row.endswith("aiolock: nothing was found") for row in rows), run.stdout


@pytest.mark.timeout(120)
def test_a_scenario_tells_the_same_story_each_time() -> None:
    first, second = (record("redisson-dead-waiter") for _ in range(2))
    assert "stuck: C still waits" in first.stdout
    assert first.stdout == second.stdout
