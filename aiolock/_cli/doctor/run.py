"""`run`: every check in its turn, the report, the exit code."""

import asyncio
import logging
import signal
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress

from redis.asyncio import Redis

from aiolock._cli.doctor import quorum, trials
from aiolock._cli.doctor.examination import Examination
from aiolock._cli.doctor.probe import PATIENCE, address
from aiolock._cli.doctor.report import Report
from aiolock._cli.output import ReaderGoneError, write
from aiolock._config import LockConfig
from aiolock._redis.connector import Connector


class _UsageError(Exception):
    """What was asked for cannot be done."""


def run(urls: Sequence[str], *, lease: float, prefix: str, primary: str | None, as_json: bool) -> int:
    """
    Examine the servers at *urls* as a client with that *lease* and *prefix* would use them; the exit code.

    Several are to be a quorum. *primary* is which one to examine where a Sentinel watches several.
    """
    # A shell that starts us in the background has SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    logging.getLogger("aiolock").addHandler(logging.NullHandler())  # What the trial lock's client logs, a check tells.
    try:
        if len(urls) > 1:
            if primary is not None:
                raise _UsageError("--primary says which primary of a Sentinel is meant: several URLs are a quorum")
            report = asyncio.run(report_on_quorum(urls, lease, prefix))
        else:
            report = asyncio.run(report_on(urls[0], lease, prefix, primary))
    except _UsageError as error:
        print(f"aiolock: {error}", file=sys.stderr)
        return 2
    with suppress(ReaderGoneError):  # Who saw enough may still ask for the verdict.
        write(report.json() if as_json else report.text())
    return 0 if report.fit else 1


async def report_on(url: str, lease: float, prefix: str, primary: str | None = None) -> Report:
    """What is found there."""
    config = _config(lease, prefix)
    async with _client(url) as redis:
        return Report(address(redis), lease, await Examination(url, redis, config, primary).run())


async def report_on_quorum(urls: Sequence[str], lease: float, prefix: str) -> Report:
    """What is found at several servers."""
    config = _config(lease, prefix)
    async with AsyncExitStack() as stack:
        servers = [(url, await stack.enter_async_context(_client(url))) for url in urls]
        addresses = ", ".join(address(redis) for _, redis in servers)
        return Report(addresses, lease, await quorum.examine(servers, config))


def _config(lease: float, prefix: str) -> LockConfig:
    try:
        config = LockConfig(lease=lease, prefix=prefix)
        trials.throw_away(prefix)
    except ValueError as error:
        raise _UsageError(error) from error
    return config


def _client(url: str) -> "Redis":
    try:
        redis = Redis.from_url(url)
        Connector.of(redis, None, PATIENCE)
    except (TypeError, ValueError) as error:  # What it says may quote the password.
        raise _UsageError(
            "redis-py cannot use this URL. It begins with redis://, rediss:// or unix://, has only settings that "
            "redis-py knows, and special characters of a password are percent-encoded"
        ) from error
    return redis
