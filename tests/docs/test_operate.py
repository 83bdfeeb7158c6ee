"""The page about an incident: its commands are run one after the other, on a real incident, and print what it shows."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from shlex import split
from subprocess import PIPE, Popen

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint
from redis.asyncio import Redis

from aiolock import LockClient, LockConfig
from aiolock._embedded_server import Server
from aiolock.opentelemetry import instrument
from tests.docs.pages import ROOT, Block, read
from tests.support.observe import all_parked, answered, renewed

PAGE = read(ROOT / "docs/how-to/operate.md")
NAME = "order:42"
ROWS = [line.split("|")[1:4] for line in PAGE.prose.splitlines() if line.startswith("| `aiolock.")]
METRICS = {
    name: (waits.strip(), holds.strip()) for names, waits, holds in ROWS for name in re.findall(r"`(\S+)`", names)
}
ALERTS = ROOT / "examples/monitoring/alerts.yml"
HOLDER = """
import asyncio, sys
from aiolock import LockClient, LockConfig

async def main(url, who):
    async with LockClient.from_url(url, config=LockConfig(client_name=who)) as locks:
        print("begins", flush=True)
        async with locks.lock("order:42"):
            print("holds", flush=True)
            await asyncio.Event().wait()

asyncio.run(main(*sys.argv[1:]))
"""


def commands() -> list[tuple[Block, str | None]]:
    """The commands of the page, each with what is shown of its output."""
    blocks = list(PAGE.blocks)
    following = [*blocks[1:], None]
    return [
        (block, after.code.text if after is not None and after.language == "text" else None)
        for block, after in zip(blocks, following, strict=True)
        if block.language == "sh"
    ]


@contextmanager
def process(url: str, who: str) -> Iterator[Popen[str]]:
    with Popen([sys.executable, "-c", HOLDER, url, who], stdout=PIPE, text=True, env=environment(url)) as running:
        try:
            hears(running, "begins")
            yield running
        finally:
            running.kill()


def hears(running: Popen[str], word: str) -> None:
    assert running.stdout is not None
    assert running.stdout.readline() == f"{word}\n"


def environment(url: str) -> dict[str, str]:
    return os.environ | {"REDIS_URL": url, "PYTHONPATH": str(ROOT)}


def aiolock(url: str, *words: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "aiolock", *words]
    ran = subprocess.run(command, env=environment(url), capture_output=True, text=True, timeout=60, check=False)
    return ran.returncode, ran.stdout + ran.stderr


def told(url: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(aiolock(url, "inspect", NAME, "--json")[1])
    return found


def masked(text: str) -> list[str]:
    """The lines without what differs each time: durations, times, hosts, numbers, ids and the width of columns."""
    text = re.sub(r"\b(\d+ (d|h|min) )*\d+(\.\d+)? (ms|s|h|min|d)\b", "TIME", text)
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|\b\d\d:\d\d:\d\d", "CLOCK", text)
    text = re.sub(r"\b[0-9a-f]{8}([0-9a-f]{24}@\S+)?\b", "ID", text)
    text = re.sub(r"\S+ pid \d+", "PROCESS", text)
    text = re.sub(r"^\S+( +)\d+ +(?=billing|web)", "PROCESS ", text, flags=re.MULTILINE)
    text = re.sub(r"redis://\S+", "URL", text)
    return [" ".join(line.split()) for line in re.sub(r"\d{6,}", "TOKEN", text).strip().splitlines()]


@pytest.mark.timeout(180)
def test_the_incident(server: Server) -> None:
    with Server(server._executable) as own, ExitStack() as stack:
        billing = stack.enter_context(process(own.url, "billing"))
        hears(billing, "holds")
        token = str(told(own.url)["last_token"])
        web = stack.enter_context(process(own.url, "web"))
        while told(own.url)["waiting"] != 1:
            pass
        codes = []
        for block, shown in commands():
            assert block.code.text.startswith("aiolock ")
            words = [token if word.isdecimal() and len(word) > 10 else word for word in split(block.code.text)[1:]]
            if words[0] == "run":
                web.terminate()
                web.wait()
                assert aiolock(own.url, "break", NAME, "--yes")[0] == 0
            code, output = aiolock(own.url, *words)
            codes.append((words[0], code))
            if shown is not None:
                assert masked(output) == masked(shown), output
            if words[0] == "break" and code == 0:
                hears(web, "holds")
                while told(own.url)["waiting"] != 0:
                    pass
    assert codes == [
        *(("top", 0), ("inspect", 0), ("clients", 0)),
        *(("break", 0), ("ls", 0), ("break", 1), ("run", 0), ("doctor", 0)),
    ]


def values(reader: InMemoryMetricReader) -> Counter[str]:
    """The value of each metric, over all attributes; of a histogram the number of its values."""
    data, found = reader.get_metrics_data(), Counter[str]()
    assert data is not None
    for metric in [
        metric for each in data.resource_metrics for scope in each.scope_metrics for metric in scope.metrics
    ]:
        for point in metric.data.data_points:
            found[metric.name] += int(point.value if isinstance(point, NumberDataPoint) else point.count)
    return found


def check(cell: str, value: int, before: int) -> None:
    """Whether *value* is what the page shows in this *cell*."""
    if cell.isdecimal():
        assert value == int(cell)
    else:
        assert value > {"some": 0, "grows": before}[cell]


async def test_the_metrics_of_the_incident(redis: Redis) -> None:
    """Every metric there is, with the values of the page."""
    readers = [InMemoryMetricReader(), InMemoryMetricReader()]
    lease = LockConfig(lease=6)
    configs = [instrument(lease, meter_provider=MeterProvider([reader])) for reader in readers]
    async with LockClient(redis, config=configs[0]) as web, LockClient(redis, config=configs[1]) as billing:
        held = await billing.lock(NAME, owner="invoices").acquire()
        for _ in range(3):
            assert await web.lock(NAME).try_lock(0.01) is None
        waiting = asyncio.create_task(web.lock(NAME, owner="request").try_lock(60))
        await all_parked(web, 1)
        before = [values(reader) for reader in readers]
        await renewed(billing, 1)
        await answered(billing)
        now = [values(reader) for reader in readers]
        for metric, shown in METRICS.items():
            for cell, value, was in zip(shown, now, before, strict=True):
                check(cell, value[metric], was[metric])
        waiting.cancel()
        await held.release()
        assert METRICS.keys() == set(now[0]) | set(values(readers[1])), "each that there is"


def test_the_alerts_that_it_names_are_there() -> None:
    rules = set(re.findall(r"alert: (\w+)", ALERTS.read_text("utf-8")))
    named = set(re.findall(r"`(Lock\w+)`", PAGE.prose)) - {"LockConfig"}
    assert named == {"LockWaitsTimeOut", "LockLost", "LockAcquiresFail"}
    assert named <= rules
