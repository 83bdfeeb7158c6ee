"""`run`: all checks, one after another, then the report and the exit code."""

import asyncio
import logging
import signal
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress

from redis.asyncio import Redis

from aiolock._cli.doctor import quorum, trials
from aiolock._cli.doctor.examination import Examination
from aiolock._cli.doctor.probe import PATIENCE
from aiolock._cli.doctor.report import Report
from aiolock._cli.output import ReaderGoneError, write
from aiolock._config import LockConfig
from aiolock._redis.address import address
from aiolock._redis.connector import Connector


class _UsageError(Exception):
    """The arguments ask for something that is not possible."""


def run(urls: Sequence[str], *, lease: float, prefix: str, primary: str | None, as_json: bool) -> int:
    """
    Examine the servers at *urls* as a client with that *lease* and *prefix* would use them; returns the exit code.

    Several URLs are checked as a quorum. *primary* names the primary to examine if a Sentinel watches several.
    """
    # A shell that starts us in the background has SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    logging.getLogger("aiolock").addHandler(logging.NullHandler())  # A check reports what the trial lock's client logs.
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
    with suppress(ReaderGoneError):  # A reader that is gone may still want the exit code.
        write(report.json() if as_json else report.text())
    return 0 if report.fit else 1


async def report_on(url: str, lease: float, prefix: str, primary: str | None = None) -> Report:
    """The results of the checks at *url*."""
    config = _config(lease, prefix)
    async with _client(url) as redis:
        return Report(address(redis), lease, await Examination(url, redis, config, primary).run())


async def report_on_quorum(urls: Sequence[str], lease: float, prefix: str) -> Report:
    """The results of the checks of several servers."""
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
    except (TypeError, ValueError) as error:  # The text of the error may contain the password.
        raise _UsageError(
            "redis-py cannot use this URL. It begins with redis://, rediss:// or unix://, has only settings that "
            "redis-py knows, and special characters of a password are percent-encoded"
        ) from error
    return redis
