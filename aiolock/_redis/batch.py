"""The calls of a batch that one command can make."""

from collections.abc import Sequence

from aiolock._backend import Call
from aiolock._scripts import Script

# The server runs nothing else while it runs the command of a group.
_MOST_IN_GROUP = 32


def together(batch: Sequence[Call]) -> list[tuple[Script, list[Call]]]:
    """The calls of *batch*, grouped by their scripts; calls of one lock keep their order."""
    groups: list[tuple[Script, list[Call]]] = []
    # The number of the last group of each script.
    of_script: dict[Script, int] = {}
    # The number of the group that has the last call of each lock.
    of_lock: dict[tuple[str, ...], int] = {}
    for call in batch:
        script, lock = call.script, call.keys[:1]
        number = of_script.get(script, -1)
        if number < of_lock.get(lock, 0) or len(groups[number][1]) == _MOST_IN_GROUP:
            number = of_script[script] = len(groups)
            groups.append((script, []))
        groups[number][1].append(call)
        of_lock[lock] = number
    return groups
