"""Runs the plan: a server for each workload, rounds in which the peers take turns, a process for each run."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from aiolock._embedded_server import Server
from benchmarks import redisson
from benchmarks.conclusions import compared
from benchmarks.figures import Record
from benchmarks.peers import OLDER
from benchmarks.run import Outcome, Run
from benchmarks.workloads import WORKLOADS, Parameters

Keep = Callable[[list[Record]], None]

_HOME = Path(__file__).parents[1]


def _forget(records: list[Record]) -> None:
    return


@dataclass(frozen=True)
class Plan:
    """The selection of workloads, peers and lengths."""

    workloads: Sequence[str]
    peers: Sequence[str] | None
    """``None``: the peers of each workload."""
    loops: Sequence[str]
    seconds: float
    repeats: int
    quick: bool = False
    compared: bool = False
    """Only the peers that are compared."""
    server: str | None = None
    without: Sequence[str] = ()
    """Peers that cannot run here."""
    older: Path | None = None
    """A checkout of an earlier aiolock, for the peers that are run with it."""

    def rounds(self, workload: str) -> Iterator[tuple[int, Run]]:
        """Every run of a workload, without the server: within a round the peers take turns (A B C, A B C, ...)."""
        about = WORKLOADS[workload]
        for loop in self.loops:
            for number in range(self.repeats):
                for parameters in self._parameters(workload):
                    for peer in self._peers(workload, parameters, loop):
                        seconds = self.seconds * about.factor
                        yield number, Run(workload, peer, loop, "", seconds, dict(parameters))

    def _parameters(self, workload: str) -> Sequence[Parameters]:
        about = WORKLOADS[workload]
        return about.quick if self.quick and about.quick is not None else about.parameters

    def _peers(self, workload: str, parameters: Parameters, loop: str) -> list[str]:
        about = WORKLOADS[workload]
        usual = about.quick_peers if self.quick and self.peers is None else about.peers
        first = next(iter(parameters.values()), 0)
        fit = [peer for peer in usual if first <= about.most.get(peer, first) and peer not in self.without]
        if self.peers is not None:
            return [peer for peer in fit if peer in self.peers]
        if loop == "asyncio":
            return [each for each in fit if not self.compared or each in compared(workload)]
        # Redisson and the server have no loop, and other peers that are not compared are measured on one.
        return [each for each in fit if about.has_loop and each in compared(workload) - set(redisson.PEERS)]


def execute(
    plan: Plan, say: Callable[[str], None], before: Sequence[Record] = (), keep: Keep = _forget
) -> list[Record]:
    """
    Run the plan; returns the records in the order in which they were made.

    Rounds that are complete in *before*, the records of an interrupted run, are not run again. *keep* is told all
    records after each run.
    """
    jobs = [(number, run) for workload in plan.workloads for number, run in plan.rounds(workload)]
    records = _of_complete_rounds(jobs, before)
    done = {_identity(each) for each in records}
    started = time.monotonic()
    for workload in plan.workloads:
        left = [job for job in jobs if job[1].workload == workload and _identity(record(*job, Outcome())) not in done]
        if not left:
            continue
        with Server(_program(plan, workload)) as server, tempfile.TemporaryDirectory() as scratch:
            for number, job in left:
                run = replace(job, url=server.url, witness=str(Path(scratch, "witness")))
                outcome = _in_child(run, plan.older)
                records.append(record(number, run, outcome) | {"server": server.version})
                keep(records)
                passed = time.monotonic() - started
                say(f"[{len(records)}/{len(jobs)}, {passed:.0f} s] {summary(run, outcome)}")
    return records


def _program(plan: Plan, workload: str) -> str | None:
    """The path of the server; ``None`` means the embedded one."""
    named = WORKLOADS[workload].server
    return plan.server if named is None else shutil.which(named)


def _of_complete_rounds(jobs: Sequence[tuple[int, Run]], before: Sequence[Record]) -> list[Record]:
    """A round that was interrupted is run again as a whole: its ratios are of neighbours."""
    known = {_identity(each): each for each in before}
    rounds: dict[tuple[object, ...], list[Record]] = {}
    for number, run in jobs:
        wanted = record(number, run, Outcome())
        rounds.setdefault((run.workload, run.loop, number), []).append(wanted)
    complete = [each for each in rounds.values() if all(_identity(wanted) in known for wanted in each)]
    return [known[_identity(wanted)] for each in complete for wanted in each]


def _identity(record: Record) -> str:
    return json.dumps([record[part] for part in ("round", "workload", "peer", "loop", "seconds", "parameters")])


def record(number: int, run: Run, outcome: Outcome) -> Record:
    """The record of a run in the file of results."""
    kept = {name: value for name, value in asdict(run).items() if name not in ("url", "witness", "worker")}
    return {"round": number, **kept, **asdict(outcome)}


def summary(run: Run, outcome: Outcome) -> str:
    """One line for the terminal."""
    parameters = " ".join(f"{name}={value:g}" for name, value in run.parameters.items())
    measures = "  ".join(f"{name} {value:.6g}" for name, value in outcome.measures.items())
    failed = f"PROBLEM {outcome.problem}  " if outcome.problem else ""
    return f"{run.workload} {run.peer} {run.loop} {parameters}: {failed}{measures}"


def _in_child(run: Run, older: Path | None) -> Outcome:
    patience = run.seconds + WORKLOADS[run.workload].patience
    with tempfile.TemporaryDirectory() as first:
        if older is not None and run.peer.startswith(OLDER):
            Path(first, "aiolock").symlink_to(older.resolve() / "aiolock")
        # Python imports aiolock from the first of these paths that has it, and not from where we are.
        paths = {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join((first, str(_HOME)))}
        return _executed([sys.executable, "-m", "benchmarks.child", json.dumps(asdict(run))], paths, patience)


def _executed(command: Sequence[str], paths: dict[str, str], patience: float) -> Outcome:
    # A session of its own: all processes that it starts end with it.
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, env=os.environ | paths
    ) as process:
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
        return
