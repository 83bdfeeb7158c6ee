"""``python -m tests.protocol``: each configuration with its states, and each switch with the promise that it breaks."""

import sys
from time import process_time

from tests.protocol.configurations import CONFIGURATIONS, SWITCHES


def main() -> int:
    """Explore everything; return 1 if a configuration breaks a promise, or a switch does not break its promise."""
    bad, began = 0, process_time()
    for configuration in CONFIGURATIONS:
        started = process_time()
        found = configuration.explore()
        bad += found.broken is not None
        print(f"{configuration.name}: {found.states:,} states, {process_time() - started:.1f} s", flush=True)
        _show(found.broken, found.way)
    for switch in SWITCHES:
        found = switch.configuration.explore(switch.rule)
        print(f"\nSwitch: {switch.words} ({switch.configuration.name}, {found.states:,} states)")
        if found.broken is None or not found.broken.startswith(f"{switch.promise}:"):
            bad += 1
            print(f"  This must break {switch.promise}.")
        _show(found.broken, found.way)
    print(f"\n{process_time() - began:.0f} s of processor time; {bad or 'nothing'} is not as it must be")
    return 1 if bad else 0


def _show(broken: str | None, way: tuple[str, ...]) -> None:
    if broken is not None:
        print(f"  {broken}")
        for number, step in enumerate(way, 1):
            print(f"  {number:3} {step}")


if __name__ == "__main__":
    sys.exit(main())
