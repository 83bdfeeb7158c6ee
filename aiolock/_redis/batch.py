"""The calls of a batch that one command can make."""

from collections.abc import Sequence

from aiolock._backend import Call
from aiolock._scripts import Script


def together(batch: Sequence[Call]) -> list[list[Call]]:
    """The calls of *batch*, grouped by their scripts; calls of one lock keep their order."""
    groups: list[list[Call]] = []
    # The number of the last group of each script.
    of_script: dict[Script, int] = {}
    # The number of the group that has the last call of each lock.
    of_lock: dict[tuple[str, ...], int] = {}
    for call in batch:
        lock = call.keys[:1]
        number = of_script.get(call.script, -1)
        if number < of_lock.get(lock, 0):
            number = of_script[call.script] = len(groups)
            groups.append([])
        groups[number].append(call)
        of_lock[lock] = number
    return groups
