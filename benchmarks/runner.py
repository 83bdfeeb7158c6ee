"""Runs the plan: a server for each workload, rounds in which the peers take turns, a process for each run."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from aiolock._embedded_server import Server
from benchmarks.run import Outcome, Run
from benchmarks.workloads import WORKLOADS, Parameters

Record = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """What to run."""

    workloads: Sequence[str]
    peers: Sequence[str] | None
    """``None``: those of each workload."""
    loops: Sequence[str]
    seconds: float
    repeats: int
    quick: bool = False
    server: str | None = None
    without: Sequence[str] = ()
    """Peers that cannot run here."""

    def rounds(self, workload: str) -> Iterator[tuple[int, Run]]:
        """Every run of a workload, without the server: within a round the peers take turns (A B C, A B C, ...)."""
        about = WORKLOADS[workload]
        for loop in self.loops:
            for number in range(self.repeats):
                for parameters in self._parameters(workload):
                    for peer in self._peers(workload, parameters):
                        seconds = self.seconds * about.factor
                        yield number, Run(workload, peer, loop, "", seconds, dict(parameters))

    def _parameters(self, workload: str) -> Sequence[Parameters]:
        about = WORKLOADS[workload]
        return about.quick if self.quick and about.quick is not None else about.parameters

    def _peers(self, workload: str, parameters: Parameters) -> list[str]:
        about = WORKLOADS[workload]
        usual = about.quick_peers if self.quick and self.peers is None else about.peers
        first = next(iter(parameters.values()), 0)
        fit = [peer for peer in usual if first <= about.most.get(peer, first) and peer not in self.without]
        return [peer for peer in fit if self.peers is None or peer in self.peers]


def execute(plan: Plan, say: Callable[[str], None]) -> tuple[list[Record], str]:
    """Run it all; the records in the order in which they were made, and the server that answered."""
    jobs = [(number, run) for workload in plan.workloads for number, run in plan.rounds(workload)]
    records: list[Record] = []
    version, started = "", time.monotonic()
    for workload in plan.workloads:
        with Server(plan.server) as server, tempfile.TemporaryDirectory() as scratch:
            version = server.version
            for number, job in (job for job in jobs if job[1].workload == workload):
                run = replace(job, url=server.url, witness=str(Path(scratch, "witness")))
                outcome = _in_child(run)
                records.append(record(number, run, outcome))
                passed = time.monotonic() - started
                say(f"[{len(records)}/{len(jobs)}, {passed:.0f} s] {summary(run, outcome)}")
    return records, version


def record(number: int, run: Run, outcome: Outcome) -> Record:
    """What goes into the file of results."""
    kept = {name: value for name, value in asdict(run).items() if name not in ("url", "witness", "worker")}
    return {"round": number, **kept, **asdict(outcome)}


def summary(run: Run, outcome: Outcome) -> str:
    """One line for who watches."""
    parameters = " ".join(f"{name}={value:g}" for name, value in run.parameters.items())
    measures = "  ".join(f"{name} {value:.6g}" for name, value in outcome.measures.items())
    failed = f"PROBLEM {outcome.problem}  " if outcome.problem else ""
    return f"{run.workload} {run.peer} {run.loop} {parameters}: {failed}{measures}"


def _in_child(run: Run) -> Outcome:
    patience = run.seconds + WORKLOADS[run.workload].patience
    command = [sys.executable, "-m", "benchmarks.child", json.dumps(asdict(run))]
    # A session of its own: what it has started ends with it.
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as process:
        try:
            output, errors = process.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            return Outcome(problem=f"did not end within {patience:.0f} s")
        finally:
            _end_session(process)
    if process.returncode != 0:
        lines = errors.decode(errors="replace").strip().splitlines()
        return Outcome(problem=lines[-1] if lines else f"ended with status {process.returncode}")
    return Outcome(**json.loads(output.splitlines()[-1]))


def _end_session(process: "subprocess.Popen[bytes]") -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # It has ended, and so has all that it started.
