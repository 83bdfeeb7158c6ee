"""The model of a server, compared with real ones."""

import subprocess
import sys
from pathlib import Path

import pytest

from aiolock._embedded_server import Server

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_hundred_thousand_calls_have_the_same_effect(own: Server) -> None:
    command = [sys.executable, "-m", "tests.simulation.compare", "--calls", "100000", "--port", str(own.port)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
