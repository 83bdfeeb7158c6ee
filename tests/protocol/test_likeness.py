"""The scripts of the model give the answers and make the changes of the real scripts, in any order of calls."""

from random import Random
from typing import Any

import pytest
from redis.asyncio import Redis

from aiolock._core.commands import freed
from aiolock._scripts import LOCK
from aiolock._scripts.replies import FREED, GRANTED, LOST, REFUSED, STALE
from tests.protocol.lua import Scripts
from tests.protocol.rules import Rules
from tests.protocol.state import Kind, Message, Server, Status, owner

# These tests compute all the time, and share the machine with others.
pytestmark = pytest.mark.timeout(300)

NAME, TOKENS = "likeness", "aiolock_token:{likeness}"
MINUTES = 600_000
ACQUISITIONS = (11, 12, 21, 22)
MARKS = ("freed first", "freed second")
GRANTED_AT = 1_700_000_000_000_000
STATUSES: dict[int, Status] = {GRANTED: "granted", REFUSED: "refused", LOST: "lost", STALE: "stale"}


def any_message(random: Random) -> Message:
    acquisition = random.choice(ACQUISITIONS)
    step = random.randint(1, 3)
    match random.choice(("acquire", "acquire", "acquire", "release", "renew", "renew")):
        case "acquire":
            return Message("acquire", acquisition, step, random.choice((1, 1, 2)))
        case "release" if random.random() < 0.5:
            return Message("release", acquisition, step, 0, mark=acquisition)
        case "release":
            return Message("release", acquisition, step, random.randint(0, 1), random.choice((0, 11, 12, 21)))
        case _:
            return Message("renew", acquisition, step, 0)


def mark_of(acquisition: int) -> int:
    return freed(GRANTED_AT, acquisition)


async def answered(redis: Redis, message: Message) -> Status:
    """The answer of the real script."""
    script = {"acquire": LOCK.acquire, "release": LOCK.release, "renew": LOCK.renew}[message.kind]
    who = (f"client:{owner(message.acquisition)}", message.acquisition, message.step, message.holds)
    arguments: dict[Kind, tuple[str | int, ...]] = {
        "acquire": (*who, MINUTES, MINUTES, MINUTES),
        "release": (*who, MINUTES, MINUTES, message.forget or "", "channel", "PUBLISH"),
        "renew": (MINUTES, MINUTES, message.acquisition, message.step, MINUTES),
    }
    how = arguments[message.kind]
    if message.mark:
        script = LOCK.release_clean
        how = (message.acquisition, mark_of(message.acquisition), MARKS[owner(message.acquisition)], MINUTES, MINUTES)
        how = (*how, "channel", "PUBLISH")
    reply: Any = await redis.eval(script.source, 2, NAME, TOKENS, *how)
    status: int = reply[0][0] if message.kind == "renew" else reply[0]
    return STATUSES[status]


Keys = tuple[tuple[int, ...] | None, frozenset[tuple[int, str]], tuple[int, ...]]
"""The lock, the ends, and the marks."""


async def real(redis: Redis) -> Keys:
    fields: Any = await redis.hgetall(NAME)
    lock = None
    if fields:
        acquisition = int(fields[b"aiolock:acquisition"])
        holds = fields[f"client:{owner(acquisition)}".encode()]
        numbers = (holds, fields.get(b"aiolock:step", 1), fields.get(b"aiolock:renewal", 0))
        lock = (acquisition, *map(int, numbers))
    scores: Any = await redis.zrange(TOKENS, 0, -1, withscores=True)
    ends = {(int(id), "freed" if score % 10 == FREED else "lost") for id, score in scores if id.isdigit()}
    by_mark = {mark_of(acquisition): acquisition for acquisition in ACQUISITIONS}
    found = dict(scores)
    marks = tuple(by_mark.get(int(found.get(mark.encode(), 0)), 0) for mark in MARKS)
    return lock, frozenset(ends), marks


def modelled(server: Server) -> Keys:
    lock = server.lock
    found = None if lock is None else (lock.acquisition, lock.holds, lock.step, lock.renewal)
    return found, frozenset(server.ends), server.marks


@pytest.mark.parametrize("seed", range(5))
async def test_the_model_is_like_the_real_scripts(redis: Redis, seed: int) -> None:
    random, scripts, server = Random(seed), Scripts(Rules()), Server()
    seen: set[Status] = set()
    for number in range(600):
        # Without this the model would be left with ended acquisitions only.
        if number % 20 == 0:
            await redis.delete(NAME, TOKENS)
            server = Server()
        if random.random() < 0.1:
            await redis.delete(NAME)
            server = server._replace(lock=None)
        message = any_message(random)
        server, answer = scripts.execute(server, message)
        assert await answered(redis, message) == answer.status, message
        assert await real(redis) == modelled(server), message
        seen.add(answer.status)
    assert seen == set(STATUSES.values())
