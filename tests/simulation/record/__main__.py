"""The command line of the track record; see the package."""

import argparse
import gc
import os
import sys
import textwrap

# The order of sets of strings must be the same in every process: Python is started again with a fixed seed for hashes.
if os.environ.get("PYTHONHASHSEED") != "0":
    os.environ["PYTHONHASHSEED"] = "0"
    os.execv(sys.executable, [sys.executable, "-m", "tests.simulation.record", *sys.argv[1:]])

from tests.simulation import world

world.install()

from tests.simulation.record import __doc__ as words  # noqa: E402
from tests.simulation.record.scenario import Result, Verdict, run  # noqa: E402
from tests.simulation.record.scenarios import SCENARIOS  # noqa: E402

_WIDTH = 100


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation.record",
        description=words,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [scenario.name for scenario in SCENARIOS]
    parser.add_argument("name", nargs="?", choices=names, metavar="NAME", help="one of: " + ", ".join(names))
    return parser.parse_args()


def _row(result: Result) -> str:
    scenario = result.scenario
    theirs = ", ".join(result.theirs.kinds) or "nothing was found"
    ours = ", ".join(result.ours.kinds) or "nothing was found"
    right = "" if result.is_right else "  NOT AS EXPECTED"
    return f"{scenario.name:<28} {scenario.issue:<34} {theirs:<14} aiolock: {ours}{right}"


def _tell(result: Result) -> None:
    scenario = result.scenario
    how = "the library itself" if scenario.is_library else "its commands"
    print(f"{scenario.name}: {scenario.library}, {scenario.url}\n")
    print(textwrap.fill(scenario.happened, _WIDTH))
    print(f"\n{scenario.library} ({how}), with the virtual time in seconds:")
    _tell_verdict(result.theirs)
    print("\naiolock, under the same events:")
    _tell_verdict(result.ours)


def _tell_verdict(verdict: Verdict) -> None:
    for line in verdict.lines:
        print(line if len(line) <= _WIDTH else line[: _WIDTH - 4] + " ...")
    print("  " + ("\n  ".join([*verdict.found, *verdict.broken]) or "nothing was found"))


def _main() -> int:
    options = _options()
    # Remains of killed processes are of no interest.
    sys.unraisablehook = lambda _: None
    gc.disable()
    results = [run(scenario) for scenario in SCENARIOS if options.name in (None, scenario.name)]
    for result in results:
        if options.name is None:
            print(_row(result))
        else:
            _tell(result)
    return not all(result.is_right for result in results)


if __name__ == "__main__":
    sys.exit(_main())
