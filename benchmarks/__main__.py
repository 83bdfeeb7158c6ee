"""`python -m benchmarks`: run workloads, say how they go, and write the results to a file."""

import argparse
import json
import signal
import sys
from dataclasses import replace
from pathlib import Path

from benchmarks import machine, peers, redisson
from benchmarks.figures import lines
from benchmarks.runner import Plan, execute
from benchmarks.workloads import WORKLOADS


def arguments(words: list[str]) -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    choices = ", ".join(f"{key} ({workload.title})" for key, workload in WORKLOADS.items())
    parser.add_argument("workloads", nargs="*", metavar="workload", help=f"default: all of {choices}")
    parser.add_argument("--peers", nargs="+", choices=peers.NAMES, help="only these; default: all of a workload")
    parser.add_argument("--loop", choices=("asyncio", "uvloop", "both"), default="asyncio")
    parser.add_argument("--seconds", type=float, help="measured in each run (default 2; quick 0.4)")
    parser.add_argument("--repeats", type=int, help="rounds in which the peers take turns (default 5; quick 1)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    parser.add_argument("--quick", action="store_true", help="small, and only what the figures need: below a minute")
    parser.add_argument("--server", help="path of a server to run instead of the embedded Valkey")
    chosen = parser.parse_args(words)
    if unknown := [workload for workload in chosen.workloads if workload not in WORKLOADS]:
        parser.error(f"no such workload: {', '.join(unknown)}; there are {', '.join(WORKLOADS)}")
    return chosen


def main(words: list[str]) -> None:
    """Run what *words*, the command line, ask for."""
    chosen = arguments(words)
    plan = Plan(
        workloads=chosen.workloads or list(WORKLOADS),
        peers=chosen.peers,
        loops=("asyncio", "uvloop") if chosen.loop == "both" else (chosen.loop,),
        seconds=chosen.seconds or (0.4 if chosen.quick else 2.0),
        repeats=chosen.repeats or (1 if chosen.quick else 5),
        quick=chosen.quick,
        server=chosen.server,
    )
    records, server = execute(_without_java(plan), lambda line: print(line, flush=True))
    print("\n".join(line for loop in plan.loops for line in lines(records, loop)))
    if chosen.json is not None:
        about = {"machine": {"server": server, **machine.describe()}, "peers": peers.versions() | redisson.version()}
        chosen.json.write_text(json.dumps({**about, "records": records}, indent=1) + "\n", "utf-8")
        print(f"written: {chosen.json}; make the page with: python -m benchmarks.page {chosen.json}")


def _without_java(plan: Plan) -> Plan:
    """The plan without Redisson where that cannot run, which is said; it is built where it can."""
    planned = {run.peer for workload in plan.workloads for _, run in plan.rounds(workload)}
    if planned.isdisjoint(redisson.PEERS) or (why := redisson.build()) is None:
        return plan
    print(f"Redisson is left out: {why}")
    return replace(plan, without=redisson.PEERS)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # So that the run and the server end with us.
    main(sys.argv[1:])
