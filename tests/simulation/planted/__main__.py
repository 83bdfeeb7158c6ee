"""The command line of the planted faults; see the package."""

import argparse
import sys

from tests.simulation.planted import __doc__ as words
from tests.simulation.planted.fault import Fault, look_for
from tests.simulation.planted.faults import FAULTS

BUDGET = 1000


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation.planted",
        description=words,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", default="", help="faults whose description or file contains this")
    parser.add_argument("--seeds", type=int, default=BUDGET, help=f"the most for each fault; {BUDGET} by default")
    parser.add_argument("--words", action="store_true", help="also what the first violation says")
    return parser.parse_args()


def _row(fault: Fault, seeds: int, *, with_words: bool) -> tuple[str, bool]:
    """The row of the table, and whether it is as the fault says: found, or missed for a reason."""
    search = look_for(fault, seeds)
    found = ", ".join(search.kinds) or f"not found: {fault.missed or 'but it should be'}"
    row = f"| {fault.file} | {fault.what} | {search.seeds} | {found} |"
    return (f"{row}\n{search.words}" if with_words else row), bool(search.kinds or fault.missed)


def _main() -> int:
    options = _options()
    print("| file | fault | seeds | found as |\n|---|---|---|---|")
    unexpected = 0
    for fault in FAULTS:
        if options.only in f"{fault.file} {fault.what}":
            row, is_right = _row(fault, options.seeds, with_words=options.words)
            unexpected += not is_right
            print(row, flush=True)
    return bool(unexpected)


if __name__ == "__main__":
    sys.exit(_main())
