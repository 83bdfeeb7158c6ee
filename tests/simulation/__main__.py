"""
The command line of the simulation.

    python -m tests.simulation --seeds 1000 --start 0     run seeds; tell of each that finds anything
    python -m tests.simulation --seed 17 --trace          one seed, with all that happened in it
    python -m tests.simulation --minutes 30 --jobs 2      as many seeds as there is time for, in two processes
    python -m tests.simulation --seeds 50 --twice         each seed twice: is it the same run?

A seed that finds something is shrunk, and the command that runs it again with a trace is printed. With `--complete` a
run fails that never exercised one of the faults or acts. `python -m tests.simulation.proof` writes the tables of
`docs/concepts/proof.md` from `long_run.json`, which `--seeds 100000 --jobs 2 --json` prints.

One seed is the same run everywhere: no set of objects is iterated, and each random draw is from a named generator.
"""

import argparse
import json
import logging
import os
import sys
from collections.abc import Iterator
from itertools import count
from time import perf_counter, process_time

# The order of sets of strings must be the same in every process: Python is started again with a fixed seed for hashes.
if os.environ.get("PYTHONHASHSEED") != "0":
    os.environ["PYTHONHASHSEED"] = "0"
    os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])

from tests.simulation import world

world.install()

from tests.simulation.campaign import Tally, command, is_same_twice, most_common, run, shrink, start_job, unexercised  # noqa: E402
from tests.simulation.profiles import PROFILES  # noqa: E402
from tests.simulation.scenario import Choice, ErrorsAreViolations, Outcome, simulate  # noqa: E402
from tests.simulation.topologies import TOPOLOGIES  # noqa: E402

_MOST_TOLD = 700


def _names_of_acts() -> list[str]:
    return sorted({act.__name__ for kind in TOPOLOGIES.values() for mix in kind.mixes for act in mix})


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, help="the number of seeds; without it one, or all that --minutes allow")
    parser.add_argument("--start", type=int, default=0, help="the first of them")
    parser.add_argument("--step", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, help="the only seed")
    parser.add_argument("--profile", choices=PROFILES, help="which faults there are; by default the seed decides")
    parser.add_argument("--on", choices=TOPOLOGIES, help="the topology; by default the seed decides")
    parser.add_argument(
        "--act", choices=_names_of_acts(), metavar="ACT", help="only mixes of acts that contain this one"
    )
    parser.add_argument("--eager", action="store_true", help="each task begins at once, from Python 3.12 on")
    parser.add_argument("--faults", help="only these faults of the plan, by number, with commas between; or none")
    parser.add_argument("--horizon", type=float, help="seconds for which acts are begun")
    parser.add_argument("--trace", action="store_true", help="print what happens, with the virtual time")
    parser.add_argument("--twice", action="store_true", help="run each seed twice and compare the digests")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="the longest time for all seeds")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--stop", type=int, default=0, help="stop after that many seeds that found something")
    parser.add_argument("--no-shrink", action="store_true", help="show a seed as it is")
    parser.add_argument("--complete", action="store_true", help="fail if a fault or an act was never exercised")
    parser.add_argument("--json", action="store_true", help="print the tally as JSON")
    return parser.parse_args()


def _choices(options: argparse.Namespace) -> Iterator[Choice]:
    faults = None
    if options.faults is not None:
        faults = () if options.faults == "none" else tuple(map(int, options.faults.split(",")))
    seeds: range | count[int]
    if options.seed is not None:
        seeds = range(options.seed, options.seed + 1)
    elif options.seeds is None and options.minutes != float("inf"):
        seeds = count(options.start, options.step)
    else:
        seeds = range(options.start, options.start + (options.seeds or 1), options.step)
    for seed in seeds:
        yield Choice(seed, options.profile, options.on, faults, options.horizon, options.act, options.eager)


def _tell(outcome: Outcome, options: argparse.Namespace) -> None:
    print(f"seed {outcome.choice.seed}: " + " | ".join(outcome.violations[:3])[:_MOST_TOLD])
    if not options.no_shrink:
        outcome = shrink(outcome)
    print("  " + command(outcome.choice), flush=True)


def _trace(choice: Choice) -> int:
    outcome = simulate(choice, tracing=True)
    print("\n".join(outcome.lines))
    for number, fault in enumerate(outcome.plan):
        print(f"fault {number} at {fault.at:.3f}: {fault}")
    print(f"{outcome.seconds:.3f} s, {outcome.turns} turns, digest {outcome.digest:08x}")
    print("\n".join(outcome.violations) or "nothing was found")
    return bool(outcome.violations)


def _compare(options: argparse.Namespace) -> int:
    different = [choice.seed for choice in _choices(options) if not is_same_twice(choice)]
    print(f"seeds that are not the same twice: {different}" if different else "each seed was the same twice")
    return bool(different)


def _run_alone(options: argparse.Namespace) -> Tally:
    ends = perf_counter() + 60 * options.minutes

    def goes_on(tally: Tally) -> bool:
        return perf_counter() < ends and not (options.stop and sum(tally.found.values()) >= options.stop)

    return run(_choices(options), lambda outcome: _tell(outcome, options), goes_on)


def _run_jobs(options: argparse.Namespace) -> Tally:
    """Each process has every *n*-th seed."""
    given = [word for word in sys.argv[1:] if word != "--json"]
    jobs = []
    for number in range(options.jobs):
        first = options.start + number
        seeds = [] if options.seeds is None else ["--seeds", str(options.seeds - number)]
        jobs.append(
            start_job([*given, "--jobs", "1", "--start", str(first), "--step", str(options.jobs), *seeds, "--json"])
        )
    tally = Tally()
    for job in jobs:
        assert job.stdout is not None
        *lines, last = job.stdout.read().splitlines() or [""]
        print("\n".join(lines), end="\n" if lines else "")
        if job.wait() not in (0, 1):
            raise SystemExit(f"a process of the simulation failed:\n{last}")
        tally.merge(json.loads(last))
    return tally


def _main() -> int:
    options = _options()
    logging.getLogger().addHandler(ErrorsAreViolations())
    logging.getLogger().setLevel(logging.WARNING)
    if options.trace:
        return _trace(next(_choices(options)))
    if options.twice:
        return _compare(options)
    began, processor = perf_counter(), process_time()
    tally = _run_alone(options) if options.jobs == 1 else _run_jobs(options)
    if options.json:
        print(json.dumps(vars(tally)))
    else:
        took, used = perf_counter() - began, process_time() - processor
        print(
            f"{tally.seeds} seeds, {tally.seconds / 3600:.1f} virtual hours in {took:.1f} s, digest {tally.digest:08x}"
        )
        if options.jobs == 1:
            print(
                f"{tally.seeds / used:.1f} seeds a second of processor time, {tally.turns / tally.seeds:.0f} turns each"
            )
        print(f"faults: {most_common(tally.faults)}\nacts: {most_common(tally.acts)}")
        print(f"profiles: {most_common(tally.profiles)}\nfound: {most_common(tally.found)}")
    return bool(tally.found) or (options.complete and not options.json and not _is_complete(tally, options))


def _is_complete(tally: Tally, options: argparse.Namespace) -> bool:
    missing = unexercised(tally, Choice(0, options.profile, options.on, act=options.act))
    print(f"never exercised: {', '.join(missing) or 'none'}")
    return not missing


if __name__ == "__main__":
    sys.exit(_main())
