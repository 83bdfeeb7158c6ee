"""`python -m benchmarks`: run workloads, report their progress, and write the results to a file."""

import argparse
import shutil
import signal
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks import older, peers, redisson, sessions
from benchmarks.figures import Record, lines
from benchmarks.runner import Plan, execute
from benchmarks.workloads import WORKLOADS


def arguments(words: list[str]) -> argparse.Namespace:
    """The options on the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    choices = ", ".join(f"{key} ({workload.title})" for key, workload in WORKLOADS.items())
    parser.add_argument("workloads", nargs="*", metavar="workload", help=f"default: all of {choices}")
    parser.add_argument("--peers", nargs="+", choices=peers.NAMES, help="only these; default: all of a workload")
    parser.add_argument("--loop", choices=("asyncio", "uvloop", "both"), default="asyncio")
    parser.add_argument("--seconds", type=float, help="measured in each run (default 2; quick 0.4)")
    parser.add_argument("--repeats", type=int, help="rounds in which the peers take turns (default 5; quick 1)")
    parser.add_argument("--compared", action="store_true", help="only the peers that a figure or a sentence compares")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there, in place of those it has")
    parser.add_argument("--resume", action="store_true", help="keep the complete rounds of this commit in that file")
    parser.add_argument("--quick", action="store_true", help="small, and only what the figures need: below a minute")
    parser.add_argument("--server", help="path of a server to run instead of the embedded Valkey")
    parser.add_argument(
        "--older",
        metavar="COMMIT",
        default=older.USUAL,
        help="the earlier aiolock to compare with: a commit, or the folder of a checkout (default %(default)s)",
    )
    chosen = parser.parse_args(words)
    if unknown := [workload for workload in chosen.workloads if workload not in WORKLOADS]:
        parser.error(f"no such workload: {', '.join(unknown)}; there are {', '.join(WORKLOADS)}")
    return chosen


def main(words: list[str]) -> None:
    """Run the workloads that *words*, the command line, ask for."""
    chosen = arguments(words)
    plan = Plan(
        workloads=chosen.workloads or list(WORKLOADS),
        peers=chosen.peers,
        loops=("asyncio", "uvloop") if chosen.loop == "both" else (chosen.loop,),
        seconds=chosen.seconds or (0.4 if chosen.quick else 2.0),
        repeats=chosen.repeats or (1 if chosen.quick else 5),
        quick=chosen.quick,
        compared=chosen.compared,
        server=chosen.server,
    )
    try:
        records = _run(plan, chosen)
    except KeyboardInterrupt:
        kept = f"; {chosen.json} has what was measured: go on with --resume" if chosen.json is not None else ""
        sys.exit(f"interrupted{kept}")
    print("\n".join(line for loop in plan.loops for line in lines(records, loop)))
    if chosen.json is not None:
        print(f"written: {chosen.json}; make the page with: python -m benchmarks.page {chosen.json}")


def _run(plan: Plan, chosen: argparse.Namespace) -> list[Record]:
    with tempfile.TemporaryDirectory() as scratch:
        plan = _with_older(_without_java(_without_redis(plan)), chosen.older, Path(scratch))
        known = sessions.read(chosen.json) if chosen.json is not None and chosen.json.exists() else []
        session = sessions.begin(chosen.older)
        if chosen.resume:
            session = sessions.resumed(known, session)

        def keep(records: list[Record]) -> None:
            if chosen.json is not None:
                sessions.write(chosen.json, sessions.replaced(known, session | {"records": records}))

        return execute(plan, lambda line: print(line, flush=True), session["records"], keep)


def _with_older(plan: Plan, told: str, scratch: Path) -> Plan:
    """The plan with an earlier aiolock if it needs one; without those peers, with a message, if there is none."""
    if not any(peer.startswith(peers.OLDER) for peer in _planned(plan)):
        return plan
    if isinstance(found := older.find(told, scratch), Path):
        return replace(plan, older=found)
    print(f"An earlier aiolock is left out: {found}")
    return replace(plan, without=(*plan.without, *(name for name in peers.NAMES if name.startswith(peers.OLDER))))


def _without_java(plan: Plan) -> Plan:
    """The plan without Redisson if that cannot run here, with a message; Redisson is built if that is possible."""
    if _planned(plan).isdisjoint(redisson.PEERS) or (why := redisson.build()) is None:
        return plan
    print(f"Redisson is left out: {why}")
    return replace(plan, without=redisson.PEERS)


def _without_redis(plan: Plan) -> Plan:
    """The plan without the workloads whose server is not there, with a message."""
    absent = [each for each in plan.workloads if (named := WORKLOADS[each].server) and shutil.which(named) is None]
    for each in absent:
        print(f"{each} is left out: there is no {WORKLOADS[each].server}")
    return replace(plan, workloads=[each for each in plan.workloads if each not in absent])


def _planned(plan: Plan) -> set[str]:
    return {run.peer for workload in plan.workloads for _, run in plan.rounds(workload)}


if __name__ == "__main__":
    # This ends the run and the server with this process.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    main(sys.argv[1:])
