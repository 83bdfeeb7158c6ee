"""The benchmarks in small: they run, watch and report. Nothing here looks at a time."""

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from redis.asyncio import Redis

from aiolock._embedded_server import Server
from benchmarks import page, peers, readme
from benchmarks.__main__ import main
from benchmarks.by_hand import ByHand, check, load
from benchmarks.figures import FIGURES, Figure, Side
from benchmarks.peers.adapter import Lock, Peer
from benchmarks.sections import Sections
from benchmarks.statistic import percentile, quantiles
from benchmarks.witness import Witness
from benchmarks.workloads import WORKLOADS

SVG = "http://www.w3.org/2000/svg"
MAIN = {"B4": "median", "B10": "requests_per_second", "B11": "requests_per_second"}

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the benchmarks need Linux")


def result(*records: dict[str, Any]) -> dict[str, Any]:
    machine = {"server": "valkey 9.1.2", "processor": "abacus", "Python": "CPython 3.11.7"}
    return {"machine": machine, "peers": {"aiolock": "aiolock-redis 0.1.0"}, "records": list(records)}


def made(workload: str, peer: str, number: int = 0, problem: str | None = None, **measures: float) -> dict[str, Any]:
    parameters = dict(WORKLOADS[workload].parameters[0])
    base = {"round": number, "workload": workload, "peer": peer, "loop": "asyncio", "seconds": 2.0}
    return base | {"parameters": parameters, "measures": measures, "distribution": [], "problem": problem}


def figure(workload: str, measure: str, peer: str) -> Figure:
    return next(each for each in FIGURES if each.workload == workload and each.bottom == Side(peer, measure))


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("workloads", "among", "expected"),
    [
        ("B1 B2 B5", ["aiolock", "bare"], ["aiolock", "bare"] * 3),
        ("B3 B4", ["aiolock", "pipelined", "chain"], ["aiolock", "pipelined", "aiolock", "chain"]),
        ("B6", ["aiolock"], ["aiolock"]),
        ("B10", ["aiolock", "no-lock"], ["aiolock", "no-lock"] * 2),
        ("B11 B12 B13", ["aiolock"], ["aiolock"] * 6),
        ("B14", ["aiolock"], ["aiolock"] * 2),
        ("B15", ["aiolock", "quorum"], ["aiolock", "quorum"] * 2),
    ],
)
def test_a_tiny_round_yields_results_without_problems(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], workloads: str, among: list[str], expected: list[str]
) -> None:
    path = tmp_path / "results.json"
    main([*workloads.split(), "--quick", "--seconds", "0.8", "--json", str(path), "--peers", *among])
    results = json.loads(path.read_text("utf-8"))
    assert [record["peer"] for record in results["records"]] == expected
    assert list(dict.fromkeys(record["workload"] for record in results["records"])) == workloads.split()
    for record in results["records"]:
        assert record["problem"] is None
        assert all(value >= 0 for value in record["measures"].values())
        assert record["measures"][MAIN.get(record["workload"], "sections_per_second")] > 0
        assert record["distribution"] == sorted(record["distribution"])
        assert bool(record["distribution"]) == (record["workload"] == "B4")
    assert results["machine"]["server"].startswith("valkey")
    assert f"[{len(expected)}/{len(expected)}," in capsys.readouterr().out
    page.main([str(path), "--docs", str(tmp_path)])
    assert "`aiolock`" in (tmp_path / "benchmarks.md").read_text("utf-8")


async def test_scripts_by_hand_grant_and_free(redis: Redis) -> None:
    await load(redis)
    calls = ByHand("orders")
    check(await redis.evalsha(*calls.acquire()), "acquire")
    with pytest.raises(RuntimeError, match="the server answered"):
        check(await redis.evalsha(*ByHand("orders").acquire()), "acquire")
    check(await redis.evalsha(*calls.release()), "release")
    assert await redis.exists("orders") == 0


class NoLock(Peer):
    """Locks nothing."""

    def lock(self, name: str) -> Lock:
        return NoSection()


class NoSection(Lock):
    async def __aenter__(self) -> None:
        await asyncio.sleep(0)

    async def __aexit__(self, *_: object) -> None:
        await asyncio.sleep(0)


async def test_a_peer_that_lets_two_in_is_reported() -> None:
    now = asyncio.get_running_loop().time()
    with Witness() as witness:
        sections = Sections(NoLock("", 2, 30), ["shared"] * 2, witness, shared=True)
        tally = await sections.count(now, now + 0.05)
    assert tally.problem is not None
    assert "two holders at a time" in tally.problem


def test_overlaps_are_seen_between_processes(tmp_path: Path) -> None:
    path = tmp_path / "witness"
    Witness.create(path)
    with Witness(path=str(path)) as one, Witness(path=str(path)) as other:
        one.enter(1)
        one.leave(1)
        other.enter(2)
        assert one.overlaps == other.overlaps == 0
        one.enter(1)
        other.leave(2)
        assert one.overlaps == other.overlaps == 1


async def test_a_peer_that_fails_is_reported() -> None:
    class Failing(NoLock):
        def lock(self, name: str) -> Lock:
            raise ConnectionError("pool exhausted")

    now = asyncio.get_running_loop().time()
    with Witness() as witness:
        tally = await Sections(Failing("", 2, 30), ["a", "b"], witness, shared=False).count(now, now + 0.01)
    assert tally.problem == "2 × ConnectionError: pool exhausted"


@pytest.mark.parametrize("name", ["aiolock", "bare", "batcher", "redis-py", "redis-py-default-pool"])
async def test_an_adapter_holds_and_frees(server: Server, name: str) -> None:
    async with peers.make(name, server.url, 2, 30) as peer:
        held = f"held-by-{name}"
        lock = peer.lock(held)
        for _ in range(2):
            async with lock, Redis.from_url(server.url) as redis:
                assert await redis.exists(held) == 1


def test_every_workload_names_known_peers_and_a_figure() -> None:
    for key, workload in WORKLOADS.items():
        assert set(workload.peers) | set(workload.quick_peers) | set(workload.special) <= set(peers.NAMES)
        assert set(workload.quick_peers) <= set(workload.peers)
        assert any(each.workload == key for each in FIGURES)
        compared = {side.peer for each in FIGURES if each.workload == key for side in (each.top, each.bottom) if side}
        assert compared <= set(workload.peers)


def test_a_ratio_is_of_runs_of_one_round() -> None:
    wanted = figure("B1", "seconds_per_section", "bare")
    records = [
        *(made("B1", "aiolock", 0, seconds_per_section=2.0), made("B1", "bare", 0, seconds_per_section=1.0)),
        *(made("B1", "aiolock", 1, seconds_per_section=9.0), made("B1", "bare", 1, seconds_per_section=3.0)),
        *(made("B1", "aiolock", 2, seconds_per_section=1.0), made("B1", "bare", 2, seconds_per_section=1.0)),
    ]
    assert wanted.measured(records, "asyncio") == (1.0, 2.0, 3.0)
    assert wanted.measured(records, "uvloop") is None
    assert not wanted.reached((1.0, 2.0, 3.0))


def test_rounds_of_two_files_are_different_rounds() -> None:
    wanted = figure("B1", "seconds_per_section", "bare")
    records = [
        made("B1", peer, seconds_per_section=seconds) | {"file": file}
        for file, peer, seconds in ((0, "aiolock", 2.0), (0, "bare", 1.0), (1, "aiolock", 9.0), (1, "bare", 3.0))
    ]
    assert wanted.measured(records, "asyncio") == (2.0, 2.5, 3.0)


def test_a_run_with_a_problem_counts_in_no_ratio() -> None:
    wanted = figure("B1", "seconds_per_section", "bare")
    records = [made("B1", "aiolock", seconds_per_section=2.0), made("B1", "bare", problem="x", seconds_per_section=1.0)]
    assert wanted.measured(records, "asyncio") is None


def test_the_page_tells_figures_failures_and_who_is_ahead(tmp_path: Path) -> None:
    records = [
        made("B1", "aiolock", seconds_per_section=2e-4, sections_per_second=5000, cpu_per_section=1e-4),
        made("B1", "bare", seconds_per_section=1e-4, sections_per_second=10000, cpu_per_section=1e-4),
        made("B1", "redis-py", seconds_per_section=1e-4, sections_per_second=20000, cpu_per_section=1e-4),
        made("B3", "aiolock", sections_per_second=30000),
        made("B3", "redis-py-default-pool", problem="900 × MaxConnectionsError: Too many connections"),
        made("B4", "aiolock", median=0.001) | {"distribution": [0.001, 0.002]},
        made("B8", "aiolock", median=0.001),
    ]
    path = tmp_path / "results.json"
    path.write_text(json.dumps(result(*records)), "utf-8")
    page.main([str(path), "--docs", str(tmp_path)])
    text = (tmp_path / "benchmarks.md").read_text("utf-8")
    assert "| B1 | time of a section / two bare EVALSHA | ≤ 0.95 × | **2** × ✗ |" in text
    assert "Ahead of aiolock here: `redis-py` (1) by 4 ×." in text
    assert "`redis-py-default-pool` (1,000) failed in 1 of 1 runs: 900 × MaxConnectionsError" in text
    assert "abacus" in text
    pictures = re.findall(r"!\[.*\]\((.*)\)", text.split("\n## ")[0])
    assert pictures == [f"benchmarks/{name}.svg" for name in ("throughput", "hand-off", "waiters")]
    for picture in pictures:
        drawn = ElementTree.parse(tmp_path / picture).getroot()
        assert any("prefers-color-scheme: dark" in (style.text or "") for style in drawn.iter(f"{{{SVG}}}style"))


def test_the_page_tells_what_it_was_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "HISTORY", tmp_path / "history.json")
    path = tmp_path / "results.json"

    def write(seconds: float, *words: str) -> str:
        records = (made("B1", "aiolock", seconds_per_section=seconds), made("B1", "bare", seconds_per_section=1.0))
        path.write_text(json.dumps(result(*records)), "utf-8")
        page.main([str(path), "--docs", str(tmp_path), *words])
        return (tmp_path / "benchmarks.md").read_text("utf-8")

    assert "Before and after" not in write(3.0, "--remember", "slow")
    text = write(2.0)
    assert "| workload | figure | slow, asyncio | now, asyncio |" in text
    assert "| B1 | time of a section / two bare EVALSHA | 3 × | 2 × |" in text


def test_the_same_results_make_the_same_files(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps(result(made("B8", "aiolock", median=0.001))), "utf-8")
    contents = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        page.main([str(path), "--docs", str(tmp_path / name)])
        contents.append([each.read_bytes() for each in sorted((tmp_path / name).rglob("*.*"))])
    assert contents[0] == contents[1]
    assert len(contents[0]) == 2


def test_page_and_readme_have_the_figures_of_the_results_that_they_are_made_from() -> None:
    text = (page.DOCS / "benchmarks.md").read_text("utf-8")
    places = {path.name: path for path in Path(page.__file__).parent.rglob("*.json")}
    names = re.findall(r"^- `([\w-]+\.json)`$", text, re.MULTILINE)
    results = page.read(places[name] for name in names)
    figures = [line for line in page.page(results, names, [], {}).splitlines() if line.startswith("| B")]
    assert [line for line in figures if "not measured" not in line and line not in text.splitlines()] == []
    records = [record for each in results for record in each["records"]]
    made = readme.README.read_text("utf-8").partition(readme.BEGIN)[2].partition(readme.END)[0]
    assert made.strip() == readme.table(records).strip()
    assert "not measured" not in made


def test_the_table_of_the_readme_is_written_in_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readme, "README", tmp_path / "README.md")
    readme.README.write_text(f"before\n\n{readme.BEGIN}\nold\n{readme.END}\n\nafter\n", "utf-8")
    readme.write([made("B4", "redis-py", median=0.05), made("B4", "aiolock", 1, median=0.002)])
    text = readme.README.read_text("utf-8")
    assert text.startswith("before\n\n<!-- made by")
    assert text.endswith("-->\n\nafter\n")
    assert "old" not in text
    assert "| time until a released lock is held by a waiter in another process | 50 ms | 2 ms |" in text


def test_percentiles() -> None:
    samples = [float(number) for number in range(100, 0, -1)]
    assert percentile(samples, 0.5) == 50
    assert percentile(samples, 0.99) == 99
    assert percentile([3.0], 0.99) == 3
    assert quantiles(samples, 3) == [1, 51, 100]
