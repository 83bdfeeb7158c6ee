"""Bodies that run once: a lock while they run, and then what they came to; see once/outcome.lua."""

from collections.abc import Sequence
from dataclasses import replace

from aiolock._cli.locks.hashes import describe
from aiolock._cli.locks.model import ONCE, Lock, Outcome
from aiolock._cli.locks.node import Node, Question, decoded, number_of
from aiolock._keys import LockKeys

_MOST_TOLD = 1000  # Characters of a result.


async def describe_running(node: Node, names: Sequence[str]) -> list[Lock]:
    """Those of *names* whose bodies run now. What others came to is not read: each may be large."""
    every, questions = [LockKeys.of_once(name, "") for name in names], list[Question]()
    for keys in every:
        questions += [("HGET", keys.lock, "aiolock:acquisition"), node.subscribers(keys.channel)]
    answers = await node.ask(questions)
    listening = {keys.name: number_of(answers[2 * at + 1]) for at, keys in enumerate(every)}
    running = await describe(node, [keys for at, keys in enumerate(every) if answers[2 * at] is not None])
    # A line is that of the fair lock of the same name.
    return [replace(lock, kind=ONCE, line=(), waiting=listening[lock.name]) for lock in running]


async def describe_once(node: Node, names: Sequence[str]) -> list[Lock]:
    """Those of *names* whose bodies run now, or have ended, which is remembered."""
    questions: list[Question] = []
    for keys in (every := [LockKeys.of_once(name, "") for name in names]):
        questions += [
            ("HGET", keys.lock, "aiolock:outcome"),
            ("PTTL", keys.lock),
            ("ZSCORE", keys.tokens, "token"),
        ]
    answers, ended = await node.ask(questions), list[Lock]()
    for at, keys in enumerate(every):
        value, left, last = answers[3 * at : 3 * at + 3]
        if value is not None and left is not None and left >= 0:
            outcome, token = _outcome(value, left / 1000), last and int(last)
            ended.append(Lock(name=keys.name, kind=ONCE, server=node.address, last_token=token, outcome=outcome))
    return ended + await describe_running(node, names)


def _outcome(value: bytes, left: float) -> Outcome:
    kind, said = value[:1], value[1:]
    text = None if kind in (b"b", b"n") else (decoded(said) or "")[:_MOST_TOLD]
    return Outcome(failed=kind == b"f", left=left, size=len(said), text=text)
