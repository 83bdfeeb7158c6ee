"""
Soak the locks: workers enter them in every way, while they and the servers are killed, paused and failed over.

    python -m tests.soak --on sentinel --minutes 20 --pythons python3.11,python3.12
"""

import argparse
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.soak.judge import judge
from tests.soak.pythons import with_environment
from tests.soak.run import Options, soak
from tests.soak.stages import STAGES
from tests.soak.summary import shown


def options() -> Options:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description="Soak the locks.")
    parser.add_argument("--on", choices=list(STAGES), default="one", help="the topology")
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32), help="of the faults and the workers")
    parser.add_argument("--pythons", default=sys.executable, help="of the workers, with commas between")
    parser.add_argument("--server", help="the program of the servers; without it the embedded Valkey")
    parser.add_argument("--sabotage", action="store_true", help="break promises, to see that the judge notices it")
    given = parser.parse_args()
    if given.sabotage and given.on != "one":
        parser.error("--sabotage is for --on one")
    pythons = [with_environment(python) for python in given.pythons.split(",")]
    return Options(given.on, given.minutes, given.seed, pythons, given.server, given.sabotage)


def main() -> int:
    chosen = options()
    folder = Path(tempfile.mkdtemp(prefix="aiolock-soak-"))
    evidence = soak(chosen, folder, tell=lambda line: print(line, file=sys.stderr))
    findings = judge(evidence)
    print(shown(chosen, evidence, findings))
    if not findings:
        shutil.rmtree(folder)
        return 0
    folder.joinpath("findings.txt").write_text("\n".join(findings) + "\n")
    print(f"the journals are in {folder}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
