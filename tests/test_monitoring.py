"""The dashboard and the alerts name metrics that exist; `/metrics` has them in three lines."""

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import REGISTRY
from redis.asyncio import Redis

from aiolock import LeaseLostError, LockClient, LockConfig
from aiolock.opentelemetry import instrument
from aiolock.testing import delayed_renewals
from examples.monitoring.promql import Query, Sample
from tests.support.observe import until

MONITORING = Path(__file__).parents[1] / "examples" / "monitoring"
DASHBOARD = json.loads((MONITORING / "dashboard.json").read_text("utf-8"))
ALERTS = (MONITORING / "alerts.yml").read_text("utf-8")

NAME = re.compile(r"\baiolock_\w+(?=[{\[])")


def queries_of_the_dashboard() -> list[str]:
    return [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


def queries_of_the_alerts() -> list[str]:
    """The text after `expr:`, on its line or folded below it."""
    found = re.findall(r"^( +)(?:- )?expr: (?:>-\n((?:\1  .*\n)+)|(.*)\n)", ALERTS, re.MULTILINE)
    return [" ".join((folded or line).split()) for _, folded, line in found]


QUERIES = [*queries_of_the_dashboard(), *queries_of_the_alerts()]


async def sample(redis: Redis) -> Sample:
    """Prometheus's data of a client that meets every event that metrics count."""
    reader = PrometheusMetricReader()
    provider = MeterProvider([reader])
    config = instrument(LockConfig(lease=30, renew_interval=0.1, command_timeout=2), meter_provider=provider)
    async with LockClient(redis, config=config) as locks, LockClient(redis) as other, other.lock("taken"):
        assert await locks.lock("taken").try_lock(0.01) is None
        with pytest.raises(LeaseLostError):
            async with locks.lock("orders"):
                await locks.lock("orders").force_release()
                await asyncio.sleep(60)
        async with locks.lock("late"):
            with delayed_renewals(locks):
                await until(lambda: value("aiolock_late_renewals_total") > 0)
        numbers = {
            (each.name, frozenset((label, text) for label, text in each.labels.items() if text)): each.value
            for family in REGISTRY.collect()
            for each in family.samples
        }
    provider.shutdown()
    return Sample(0.0, numbers)


def value(name: str) -> float:
    return sum(each.value for family in REGISTRY.collect() for each in family.samples if each.name == name)


async def test_every_metric_of_the_dashboard_and_the_alerts_exists(redis: Redis) -> None:
    seen = await sample(redis)
    names = {name for name, _ in seen.numbers}
    labels = {label for _, pairs in seen.numbers for label, _ in pairs} | {"job", "le"}
    for query in QUERIES:
        used = set(NAME.findall(query))
        assert used, query
        assert used <= names, query
        asked = set(re.findall(r'(\w+)(?:=~|!=|=)"', query)) | set(re.findall(r"\w+", " ".join(by_of(query))))
        assert asked <= labels, query
    for legend in re.findall(r"\{\{(\w+)\}\}", json.dumps(DASHBOARD)):
        assert legend in labels


def by_of(query: str) -> list[str]:
    return re.findall(r"\bby \(([^)]*)\)", query)


async def test_every_query_has_a_value(redis: Redis) -> None:
    before = Sample(-60.0, {})
    after = await sample(redis)
    empty = [query for query in QUERIES if not Query(query, [before, after], 60).at(1)]
    assert empty == [query for query in QUERIES if '{aiolock_outcome="error"}' in query], "there was no error"


def test_queries_are_well_formed() -> None:
    assert len(queries_of_the_alerts()) == ALERTS.count("- alert:") == 5
    for query in QUERIES:
        assert query.count("(") == query.count(")"), query
        Query(query, [Sample(0.0, {}), Sample(1.0, {})], 60).at(1)
    with pytest.raises(ValueError, match="missing"):
        Query("sum(rate(a))", [Sample(0.0, {})], 60).at(0)


def test_panels_do_not_overlap_and_each_says_what_it_shows() -> None:
    places = [(each["gridPos"]["x"], each["gridPos"]["y"]) for each in DASHBOARD["panels"]]
    assert len(set(places)) == len(places)
    assert all(each["title"] and each["description"] and each["fieldConfig"] for each in DASHBOARD["panels"])
    assert len({each["id"] for each in DASHBOARD["panels"]}) == len(places)


def test_the_picture_in_the_docs_has_every_panel() -> None:
    picture = (MONITORING.parents[1] / "docs" / "assets" / "dashboard.svg").read_text("utf-8")
    shown = set(re.findall(r">([^<>]+)</text>", picture))
    assert {panel["title"] for panel in DASHBOARD["panels"]} <= shown


def test_the_module_needs_the_api_only() -> None:
    """The SDK and the exporters are the application's."""
    code = "import sys; sys.modules['opentelemetry.sdk'] = None; import aiolock.opentelemetry as of; of.instrument()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


SERVICES = {
    "fastapi": """
import asyncio
from fastapi import FastAPI
from opentelemetry import metrics
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import make_asgi_app
from aiolock.fastapi import Locks, lifespan
from aiolock.opentelemetry import instrument

metrics.set_meter_provider(MeterProvider([PrometheusMetricReader()]))
app = FastAPI(lifespan=lifespan(URL, config=instrument()))
app.mount("/metrics", make_asgi_app())

@app.post("/pay")
async def pay(locks: Locks) -> None:
    async with locks.lock("order:17"):
        pass

from fastapi.testclient import TestClient
with TestClient(app) as client:
    client.post("/pay")
    print(client.get("/metrics/").text)
""",
    "aiohttp": """
import asyncio
from aiohttp import web
from opentelemetry import metrics
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client.aiohttp import make_aiohttp_handler
from aiolock.aiohttp import locks_from, setup
from aiolock.opentelemetry import instrument

metrics.set_meter_provider(MeterProvider([PrometheusMetricReader()]))
app = web.Application()
setup(app, URL, config=instrument())
app.router.add_get("/metrics", make_aiohttp_handler())

async def pay(request: web.Request) -> web.Response:
    async with locks_from(request).lock("order:17"):
        return web.Response()

app.router.add_post("/pay", pay)

from aiohttp.test_utils import TestClient, TestServer
async def main() -> None:
    async with TestClient(TestServer(app)) as client:
        await client.post("/pay")
        print(await (await client.get("/metrics")).text())
asyncio.run(main())
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("framework", SERVICES)
async def test_a_service_shows_its_metrics_to_prometheus(framework: str, server: Any, redis: Redis) -> None:
    program = SERVICES[framework].replace("URL", repr(server.url))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    lines = [line for line in out.decode().splitlines() if line.startswith("aiolock_acquires_total{")]
    assert [line.rpartition(" ")[2] for line in lines] == ["1.0"], errors.decode()
    assert "order:17" not in out.decode()
