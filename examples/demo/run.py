"""`run`: a server, the workers, the story and its verdict; and nothing of them is left afterwards."""

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from uuid import uuid4

from redis.asyncio import Redis
from redis.exceptions import RedisError

from aiolock import LockClient, LockConfig, __version__
from aiolock._embedded_server import Server
from examples.demo.account import Account
from examples.demo.protocol import LOCK, Settings
from examples.demo.screen import Screen, choose
from examples.demo.story import Story
from examples.demo.team import Team, WorkerError
from examples.demo.verdict import Check, Record, judge

# The lease is short, so that a crash is over while somebody watches.
LEASE = 2.0


class CannotRunError(Exception):
    """There is no server to run with."""


def run(*, plain: bool) -> int:
    """Run the demo; returns the exit code."""
    # In the background of a shell SIGINT is ignored, and so would be SIGTERM, which is turned into a SIGINT below.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with ExitStack() as stack:
            url = os.environ.get("REDIS_URL") or stack.enter_context(_embedded()).url
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="aiolock-demo-"))
            settings = Settings(url, f"aiolock-demo-{uuid4().hex[:8]}:", folder, LEASE)
            return asyncio.run(_play(settings, choose(plain)))
    except KeyboardInterrupt:
        print("\naiolock: interrupted; everything that the demo started is ended", file=sys.stderr)
        return 130
    except CannotRunError as error:
        print(f"aiolock: the demo cannot run: {error}", file=sys.stderr)
        return 2


def _embedded() -> Server:
    try:
        return Server()
    except RuntimeError as error:
        raise CannotRunError(f"{error}; or set REDIS_URL to a server that is running") from error


async def _play(settings: Settings, screen: Screen) -> int:
    # A polite signal gets the same cleaning up as Ctrl-C.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, os.kill, os.getpid(), signal.SIGINT)
    async with _connected(settings) as redis:
        screen.introduce(__version__, await _describe(redis))
        checks = await _watch(settings, screen, redis)
    screen.verdict(checks)
    failed = sum(not check.passed for check in checks)
    if failed:
        screen.line(f"{failed} of {len(checks)} points FAILED.", "bold red")
    else:
        screen.line("All is well: one was killed, one paused, one cancelled, and nothing was lost.", "bold green")
    return min(failed, 1)


async def _watch(settings: Settings, screen: Screen, redis: "Redis") -> list[Check]:
    """Tell the story with the workers, and judge what has become of the account."""
    account = Account(Path(settings.folder))
    account.create()
    config = LockConfig(prefix=settings.prefix, lease=settings.lease, client_name="demo")
    async with LockClient(redis, config=config) as locks, Team(settings) as team:
        story = Story(team, screen, locks.lock(LOCK), settings.lease)
        try:
            with screen:
                await _show_while(story, team, screen)
            exits = await team.stop()
        finally:
            await _forget(redis, settings)
        for name, code in exits.items():
            if code > 0:
                screen.say(f"worker {name}: {team.last_words(name)}", "bold red")
    record = Record(account.balance(), account.entries(), team.events, story.faults, exits, settings.lease)
    return judge(record)


async def _show_while(story: Story, team: Team, screen: Screen) -> None:
    """Tell the story, and show the present moment again and again meanwhile."""

    async def show() -> None:
        while True:
            await asyncio.sleep(screen.interval)
            screen.show(team)

    try:
        await team.start()
    except WorkerError as error:
        raise CannotRunError(error) from error
    try:
        async with asyncio.TaskGroup() as group:
            showing = group.create_task(show())
            await story.tell()
            showing.cancel()
    # The group has one error: the task that fails first ends the other.
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None


@asynccontextmanager
async def _connected(settings: Settings) -> AsyncIterator["Redis"]:
    try:
        redis = Redis.from_url(settings.url)
    except ValueError as error:
        raise CannotRunError(f"REDIS_URL: {error}") from error
    async with redis:
        try:
            await redis.ping()
        except (RedisError, OSError) as error:
            raise CannotRunError(f"no answer from the server: {error}") from error
        yield redis


async def _describe(redis: "Redis") -> str:
    """The server in words; never its password."""
    info = await redis.info("server")
    kind = "Valkey" if "valkey_version" in info else "Redis"
    version = info.get("valkey_version", info.get("redis_version"))
    whose = "yours, by REDIS_URL" if os.environ.get("REDIS_URL") else "started for this demo"
    return f"{kind} {version}, {whose}"


async def _forget(redis: "Redis", settings: Settings) -> None:
    """Delete what would stay on the server: the lock of a worker that was killed, and its tokens."""
    name = f"{settings.prefix}{LOCK}"
    await redis.delete(name, f"aiolock_token:{{{name}}}")
