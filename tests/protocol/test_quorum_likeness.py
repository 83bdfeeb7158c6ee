"""A server of the quorum's model gives the answers and makes the changes of the real scripts, in any order of calls."""

from random import Random
from typing import Any, NamedTuple

import pytest
from redis.asyncio import Redis

from aiolock._keys import QUORUM_KEY
from aiolock._scripts import LOCK, QUORUM_ACQUIRE, RAISE, Script
from aiolock._scripts.replies import GRANTED
from tests.protocol.quorum import Quorum
from tests.protocol.quorum_state import NOBODY, NONE, QuorumBounds, Server, Wire

# These tests compute all the time, and share the machine with others.
pytestmark = pytest.mark.timeout(300)

NAME, TOKENS = "likeness", "aiolock_token:{likeness}"
ACQUISITIONS = (b"first", b"second")
MINUTES = 600_000
# The commands of clients, and the events of a server.
COMMANDS = ("acquire", "acquire", "release", "renewal", "raising of the token")
EVENTS = (*COMMANDS, *COMMANDS, *COMMANDS, "it forgets", "it votes again", "it votes again", "the lease ends")
EPISODES, EVENTS_OF_ONE = 20, 12

Event = tuple[str, int, int]
"""The event, the client whose command it is, and the amount by which a token is raised."""


class Keys(NamedTuple):
    """The state of the name on a server, without its tokens, which differ by the time."""

    holder: int
    ended: tuple[bool, bool]
    has_vote: bool


class RealServer:
    """A server that runs the scripts."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def execute(self, event: Event) -> bool:
        """Whether the server says yes to the command."""
        what, number, raised_by = event
        acquisition = ACQUISITIONS[number].decode()
        who = (f"client:{number}", acquisition, 1)
        match what:
            case "acquire":
                return await self._says_yes(QUORUM_ACQUIRE, 1, MINUTES, 0, *who, 1, MINUTES, MINUTES, MINUTES)
            case "release":
                release = (f"client:{number}", acquisition, 2, 0, MINUTES, MINUTES, "", "channel", "PUBLISH")
                return await self._says_yes(LOCK.release, *release)
            case "renewal":
                return await self._says_yes(LOCK.renew, MINUTES, MINUTES, acquisition, 1, MINUTES)
            case _:
                return await self._says_yes(RAISE, await self.token() + raised_by, acquisition, MINUTES)

    async def _says_yes(self, script: Script, *arguments: str | int) -> bool:
        keys = (QUORUM_KEY, NAME, TOKENS) if script is QUORUM_ACQUIRE else (NAME, TOKENS)
        reply: Any = await self._redis.eval(script.source, len(keys), *keys, *arguments)
        status: int = reply[0][0] if script is LOCK.renew else reply[0]
        return status == GRANTED

    async def forget(self) -> None:
        await self._redis.delete(QUORUM_KEY, NAME, TOKENS)

    async def vote_again(self) -> None:
        """The longest lease has passed since the server forgot."""
        info: Any = await self._redis.info("server")
        await self._redis.set(QUORUM_KEY, f"{info['run_id']} 0 {MINUTES}")

    async def end_lease(self) -> None:
        await self._redis.delete(NAME)

    async def token(self) -> int:
        return int(await self._redis.zscore(TOKENS, "token") or 0)

    async def keys(self) -> Keys:
        holder = await self._redis.hget(NAME, "aiolock:acquisition")
        first, second = [await self._redis.zscore(TOKENS, each) is not None for each in ACQUISITIONS]
        since = (await self._redis.get(QUORUM_KEY) or b"? new ?").split()[1]
        return Keys(NOBODY if holder is None else ACQUISITIONS.index(holder), (first, second), since == b"0")


def says_yes(model: Quorum, server: Server, event: Event) -> tuple[Server, bool]:
    """The model's server after the command, and whether that server says yes."""
    what, number, raised_by = event
    token = server.token + raised_by if what == "raising of the token" else NONE
    wire = Wire(what == "acquire", what == "release", what == "renewal", token)
    wires = (wire, Wire()) if number == 0 else (Wire(), wire)
    ((_, after),) = model.executed(server._replace(wires=wires), number)
    told = after.wires[number]
    return after._replace(wires=(Wire(), Wire())), what == "release" or told.vote != NONE or told.has_renewed


def modelled(server: Server) -> Keys:
    return Keys(server.holder, server.ended, not server.abstains)


async def after_an_event(model: Quorum, server: Server, real: RealServer, event: Event) -> tuple[Server, bool | None]:
    """The model's server after the same event on both; their answers to a command agree."""
    match event[0]:
        case "it forgets":
            await real.forget()
            return model.forgotten(server), None
        case "it votes again":
            await real.vote_again()
            return server._replace(abstains=0), None
        case "the lease ends":
            await real.end_lease()
            return server._replace(holder=NOBODY, left=0), None
    before = await real.token()
    after, said = says_yes(model, server, event)
    # The model has no answer to a release, since nobody waits for it.
    assert await real.execute(event) == said or event[0] == "release", event
    grown = await real.token() - before
    if event[0] == "acquire":
        assert (grown > 0) == said, event
    else:
        assert grown == after.token - server.token, event
    return after, said


@pytest.mark.parametrize("seed", range(2))
async def test_a_server_of_the_quorums_model_is_like_the_real_scripts(redis: Redis, seed: int) -> None:
    random, real = Random(seed), RealServer(redis)
    model = Quorum(QuorumBounds(ahead=(0, 0, 0), forgets=True, renews=True))
    seen: set[tuple[str, bool | None]] = set()
    for _ in range(EPISODES):
        await real.forget()
        await real.vote_again()
        server = Server(0)
        for _ in range(EVENTS_OF_ONE):
            what, number = random.choice(EVENTS), random.randrange(2)
            # The model has one copy of an acquire for each server; that of one server has several.
            if what == "acquire" and server.holder == number:
                continue
            event = (what, number, random.choice((-1, 5)))
            server, said = await after_an_event(model, server, real, event)
            assert await real.keys() == modelled(server), event
            seen.add((what, said))
    assert seen >= {(what, said) for what in COMMANDS for said in (True, False)} - {("release", False)}
