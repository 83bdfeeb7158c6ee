"""The calls of a batch that one command can make: several of one script, or a release and the acquire behind it."""

from collections.abc import Sequence

from aiolock._backend import Argument, Call
from aiolock._scripts import ACQUIRE, HAND_OFF, RELEASE_CLEAN, Script

# The server runs nothing else while it runs the command of a group.
_MOST_IN_GROUP = 32


def together(batch: list[Call]) -> list[list[Call]]:
    """The calls of *batch*, grouped by their scripts, or as a hand-off; calls of one lock keep their order."""
    if _is_hand_off(batch):
        return [batch]
    groups: list[list[Call]] = []
    # The number of the last group of each script.
    of_script: dict[Script, int] = {}
    # The number of the group that has the last call of each lock.
    of_lock: dict[tuple[str, ...], int] = {}
    for call in batch:
        script, lock = call.script, call.keys[:1]
        number = of_script.get(script, -1)
        if number < of_lock.get(lock, 0) or len(groups[number]) == _MOST_IN_GROUP:
            number = of_script[script] = len(groups)
            groups.append([])
        groups[number].append(call)
        of_lock[lock] = number
    return groups


def script_of_all(group: Sequence[Call]) -> Script | None:
    """The script that makes all calls of *group*, which `together` has returned; ``None`` if each goes by itself."""
    script = group[0].script
    if len(group) == 1:
        return None
    if group[1].script is not script:
        return HAND_OFF
    return script.bundle if script.bundled else None


def keys_and_arguments(group: Sequence[Call], publish: str) -> tuple[Sequence[str], Sequence[Argument]]:
    """The keys and the arguments of the command that makes all calls of *group*."""
    first, second = group[:2]
    if first.script is not second.script:
        return second.keys, (*second.args, *first.arguments(publish))
    keys: list[str] = []
    arguments: list[Argument] = [len(group)]
    for call in group:
        keys += call.keys
        arguments += call.arguments(publish)
    return keys, arguments


def _is_hand_off(batch: Sequence[Call]) -> bool:
    """Whether *batch* is the release of a lock, and the acquire of the same lock behind it."""
    match batch:
        case [release, acquire]:
            return release.script is RELEASE_CLEAN and acquire.script is ACQUIRE and release.keys == acquire.keys
    return False
