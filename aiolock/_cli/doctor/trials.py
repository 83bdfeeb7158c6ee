"""Checks by use: a real lock is taken, renewed and released, a message is sent and received. No key of it stays."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from uuid import uuid4

from redis.asyncio import Redis, RedisCluster
from redis.exceptions import ResponseError

from aiolock import AioLockError, LockClient, LockConfig
from aiolock._cli.advice import PERMISSIONS, on_refusal
from aiolock._cli.doctor.check import Check, Status
from aiolock._cli.doctor.walk import Walk, WrongAnswerError
from aiolock._cli.probe import PATIENCE, Probe, SilentError
from aiolock._config import ENDED_MEMORY
from aiolock._keys import LockKeys


def throw_away(prefix: str) -> LockKeys:
    """The keys of a lock that nobody else uses."""
    return LockKeys.of(f"aiolock-doctor:{uuid4()}", prefix)


async def try_database(probe: Probe, number: int) -> Check:
    """Select that database, as a client does; database 0 needs no command."""
    if number:
        try:
            await probe.ask("SELECT", str(number))
        except ResponseError as error:
            return Check("database", "error", f"{number} was refused: {error}", on_refusal(error))
    return Check("database", "ok", str(number))


async def try_lock(redis: "Redis | RedisCluster", probe: Probe, keys: LockKeys, prefix: str) -> Check:
    """Walk all paths of the scripts with a lock; then delete the keys that would stay for a while."""
    config = LockConfig(prefix=prefix, command_timeout=PATIENCE, release_timeout=PATIENCE, token_retention=ENDED_MEMORY)
    try:
        async with LockClient(redis, config=config) as ours, LockClient(redis, config=config) as theirs:
            walk = Walk(ours, theirs, probe, keys)
            try:
                await walk.go()
            except WrongAnswerError as error:
                return Check("scripts", "error", f"{walk.place}: {error}", "Use Redis or Valkey.")
            except (AioLockError, ResponseError) as error:
                return Check("scripts", "error", f"{walk.place}: {error}", on_refusal(error))
    finally:
        await _delete(probe, keys)
    return Check("scripts", "ok", "a lock was taken, nested, renewed, lost and given back")


async def _delete(probe: Probe, keys: LockKeys) -> None:
    # If this fails, the keys expire soon, and the next check reports it. No failure may replace an interrupt.
    with suppress(ResponseError, SilentError):
        await probe.ask("DEL", *keys.all)


@dataclass(frozen=True, slots=True)
class Messages:
    """One kind of message; *letter* is the prefix of its commands. Without it the check comes to *failure*."""

    name: str
    letter: str
    failure: Status
    advice: str

    async def attempt(self, redis: Redis, probe: Probe, channel: str) -> Check:
        """Send a message to *channel*, and see it arrive."""
        payload = str(uuid4())
        async with Probe(redis) as listener:
            try:
                await listener.ask(f"{self.letter}SUBSCRIBE", channel)
                await probe.ask(f"{self.letter}PUBLISH", channel, payload)
            except ResponseError as error:
                return self._failed(f"refused: {error}")
            try:
                arrived = await listener.read()
            except SilentError as error:
                return self._failed(f"the message did not arrive: {error}")
            if arrived[1:] != [channel.encode(), payload.encode()]:
                return self._failed(f"something else arrived: {arrived!r}")
            try:
                await listener.ask(f"{self.letter}UNSUBSCRIBE", channel)
            except ResponseError as error:
                return self._failed(f"refused: {error}")
        return Check(self.name, "ok", "a message was sent and received")

    def _failed(self, found: str) -> Check:
        return Check(self.name, self.failure, found, self.advice)


_PLAIN = Messages("messages", "", "error", f"Without them a waiter waits until the lease is over. {PERMISSIONS}")
_SHARDED_IN_A_CLUSTER = replace(_PLAIN, name="sharded-messages", letter="S")
# Redis has had them since 7.0.
_SHARDED = Messages("sharded-messages", "S", "note", "Nothing to do: aiolock uses none on a single server.")


def messages(*, in_a_cluster: bool, sharded: bool) -> Sequence[Messages]:
    """The kinds of messages to try: in a cluster only the kind that its locks use."""
    if in_a_cluster:
        return [_SHARDED_IN_A_CLUSTER if sharded else _PLAIN]
    return [_PLAIN, _SHARDED]
