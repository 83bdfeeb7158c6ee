"""Seeds of the simulation, each in a process whose clocks were replaced before aiolock was imported."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
QUICK, MORE, EAGER = 50, 2000, 30
FIRST_EAGER = 2050


def simulated(*options: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *options], cwd=ROOT, capture_output=True, text=True, check=False
    )


@pytest.mark.timeout(300)
def test_seeds_find_nothing() -> None:
    run = simulated("--seeds", str(QUICK))
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.startswith(f"{QUICK} seeds,")


@pytest.mark.timeout(120)
def test_a_seed_is_the_same_run_in_two_processes() -> None:
    first, second = (simulated("--seed", "7", "--trace").stdout for _ in range(2))
    assert "digest" in first
    assert first == second


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks are new in Python 3.12")
@pytest.mark.timeout(300)
def test_seeds_whose_tasks_all_begin_at_once_find_nothing() -> None:
    run = simulated("--seeds", str(EAGER), "--start", str(FIRST_EAGER), "--eager")
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.startswith(f"{EAGER} seeds,")


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_more_seeds_find_nothing() -> None:
    run = simulated("--seeds", str(MORE), "--start", str(QUICK), "--jobs", "2")
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.timeout(120)
def test_a_run_that_leaves_out_a_fault_or_an_act_fails() -> None:
    run = simulated("--seeds", "1", "--on", "one", "--profile", "network", "--complete")
    assert run.returncode == 1, run.stdout + run.stderr
    assert "found: none\nnever exercised: " in run.stdout
