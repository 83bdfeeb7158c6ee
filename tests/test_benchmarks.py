"""Small runs of the benchmarks: they run, watch and report. No test here looks at a time."""

import asyncio
import json
import re
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from redis.asyncio import Redis

from aiolock._embedded_server import Server
from benchmarks import older, page, peers, readme, redisson, repository, runner, sessions
from benchmarks.__main__ import main
from benchmarks.by_hand import ByHand, check, load
from benchmarks.child import measure
from benchmarks.commands import SECTIONS, send
from benchmarks.conclusions import compared
from benchmarks.figures import FIGURES, Figure, Side
from benchmarks.observer import Observer
from benchmarks.peers.adapter import Lock, Peer
from benchmarks.run import Outcome, Run
from benchmarks.runner import Plan, execute
from benchmarks.sections import Sections
from benchmarks.statistic import percentile, quantiles
from benchmarks.witness import Witness
from benchmarks.workloads import WORKLOADS, endpoint
from tests.support.history import needs_commit

SVG = "http://www.w3.org/2000/svg"
MAIN = {"B4": "median", **dict.fromkeys(("B10", "B11", "B18", "B19"), "requests_per_second")}

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the benchmarks need Linux")


def session(*records: dict[str, Any], commit: str = "0123abc") -> sessions.Session:
    about = {"commit": commit, "day": "2026-11-25", "machine": {"processor": "abacus", "Python": "CPython 3.11.7"}}
    return about | {"peers": {"aiolock": "aiolock-redis 0.1.0"}, "records": list(records)}


def made(workload: str, peer: str, number: int = 0, problem: str | None = None, **measures: float) -> dict[str, Any]:
    parameters = dict(WORKLOADS[workload].parameters[0])
    base = {"round": number, "workload": workload, "peer": peer, "loop": "asyncio", "seconds": 2.0}
    outcome = {"measures": measures, "distribution": list[float](), "problem": problem}
    return base | {"parameters": parameters, **outcome, "server": "valkey 9.1.2"}


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
        ("B10", ["aiolock", "no-lock"], ["aiolock", "no-lock"]),
        ("B11 B12 B13", ["aiolock"], ["aiolock"] * 5),
        ("B14", ["aiolock"], ["aiolock"] * 2),
        ("B15", ["aiolock", "quorum"], ["aiolock", "quorum"] * 2),
        ("B16", ["fair", "redisson-fair"], ["fair", "redisson-fair"]),
        ("B18 B19", ["aiolock", "block-behind"], ["aiolock", "block-behind"] * 2),
    ],
)
def test_a_tiny_round_yields_results_without_problems(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], workloads: str, among: list[str], expected: list[str]
) -> None:
    path = tmp_path / "results.json"
    main([*workloads.split(), "--quick", "--seconds", "0.8", "--json", str(path), "--peers", *among])
    [results] = sessions.read(path)
    assert [record["peer"] for record in results["records"]] == expected
    assert list(dict.fromkeys(record["workload"] for record in results["records"])) == workloads.split()
    for record in results["records"]:
        assert record["server"].startswith("valkey")
        assert record["problem"] is None
        assert all(value >= 0 for value in record["measures"].values())
        assert record["measures"][MAIN.get(record["workload"], "sections_per_second")] > 0
        assert record["distribution"] == sorted(record["distribution"])
        assert bool(record["distribution"]) == (record["workload"] == "B4")
    assert results["commit"] == repository.commit()
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


@pytest.mark.parametrize("name", SECTIONS)
async def test_bare_commands_enter_and_leave_again_and_again(redis: Redis, name: str) -> None:
    await SECTIONS[name].load(redis)
    section = SECTIONS[name]("orders")
    await send(redis, section.prepare())
    rounds = []
    for _ in range(2):
        replies = [*await send(redis, section.enter()), *await send(redis, section.leave())]
        rounds.append([reply[0] if isinstance(reply, list) else reply for reply in replies])
    assert rounds[0] == rounds[1]


def test_an_earlier_aiolock_is_the_one_that_its_process_finds(tmp_path: Path) -> None:
    (tmp_path / "aiolock").mkdir()
    (tmp_path / "aiolock" / "__init__.py").write_text("raise RuntimeError('earlier')", "utf-8")
    plan = Plan(["B16"], ["older-lock-commands"], ["asyncio"], 0.1, 1, older=tmp_path)
    records = execute(plan, lambda _: None)
    assert {record["problem"] for record in records} == {"RuntimeError: earlier"}


@needs_commit("HEAD")
def test_an_earlier_aiolock_comes_from_the_history_or_a_folder(tmp_path: Path) -> None:
    found = older.find("HEAD", tmp_path)
    assert found == tmp_path
    assert (tmp_path / "aiolock" / "__init__.py").exists()
    assert older.find(str(tmp_path), Path()) == tmp_path
    assert "no-such-commit" in str(older.find("no-such-commit", tmp_path))


@pytest.mark.slow
@pytest.mark.timeout(300)
@needs_commit(older.USUAL)
def test_the_adapters_also_fit_the_earlier_aiolock(tmp_path: Path) -> None:
    found = older.find(older.USUAL, tmp_path)
    assert isinstance(found, Path)
    earlier = [peer for peer in WORKLOADS["B16"].peers if peer.startswith(peers.OLDER)]
    records = execute(Plan(["B16"], earlier, ["asyncio"], 0.8, 1, quick=True, older=found), lambda _: None)
    assert {record["peer"]: record["problem"] for record in records} == dict.fromkeys(earlier)


def runs(plan: Plan, workload: str) -> list[tuple[int, str, str]]:
    return [(number, run.loop, run.peer) for number, run in plan.rounds(workload)]


def test_peers_that_no_figure_needs_are_measured_on_one_loop() -> None:
    plan = Plan(["B1", "B16"], None, ["asyncio", "uvloop"], 0.1, 1)
    assert {peer for _, loop, peer in runs(plan, "B1") if loop == "asyncio"} == set(WORKLOADS["B1"].peers)
    assert {peer for _, loop, peer in runs(plan, "B1") if loop == "uvloop"} == compared("B1") - set(redisson.PEERS)
    assert {loop for _, loop, _ in runs(plan, "B16")} == {"asyncio"}


def test_a_plan_may_measure_only_the_peers_that_are_compared() -> None:
    plan = Plan(["B5"], None, ["asyncio", "uvloop"], 0.1, 1, compared=True)
    assert {peer for _, loop, peer in runs(plan, "B5") if loop == "asyncio"} == compared("B5")
    assert {"fair", "redisson", "redis-py"} < compared("B5") < set(WORKLOADS["B5"].peers)


def test_new_records_take_the_places_of_the_old_ones_and_leave_the_others_their_commit() -> None:
    old = [made("B1", "aiolock", number) for number in range(3)] + [made("B1", "bare"), made("B2", "aiolock")]
    after = sessions.replaced([session(*old)], session(made("B1", "aiolock"), commit="4567def"))
    found = [(each["commit"], record["workload"], record["peer"]) for each in after for record in each["records"]]
    assert found == [("4567def", "B1", "aiolock"), ("0123abc", "B1", "bare"), ("0123abc", "B2", "aiolock")]
    assert [each["commit"] for each in sessions.replaced([session(old[0])], after[0])] == ["4567def"]


def test_a_session_of_another_commit_or_machine_is_not_resumed() -> None:
    now, known = session(), session(made("B1", "aiolock"))
    assert sessions.resumed([session(commit="4567def"), known, known], now) is known
    assert sessions.resumed([known | {"commit": "4567def"}, known | {"machine": {}}], now) is now


def interrupt_after(number: int, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    """Replace each run by an outcome, and interrupt run *number* as Ctrl+C does; returns the runs before it."""
    made: list[tuple[int, str]] = []

    def in_child(run: Run, _: object) -> Outcome:
        if len(made) == number:
            raise KeyboardInterrupt
        made.append((len(made), run.peer))
        return Outcome({"seconds_per_section": 1.0})

    monkeypatch.setattr(runner, "_in_child", in_child)
    return made


def test_a_run_that_is_interrupted_keeps_its_results_and_resumes_with_the_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "results.json"
    words = ["B1", "--peers", "aiolock", "bare", "--repeats", "3", "--json", str(path)]

    def kept() -> list[tuple[int, str]]:
        return [(each["round"], each["peer"]) for each in sessions.records_of(sessions.read(path))]

    interrupt_after(3, monkeypatch)
    with pytest.raises(SystemExit, match=r"interrupted; .* go on with --resume"):
        main(words)
    assert kept() == [(0, "aiolock"), (0, "bare"), (1, "aiolock")]
    page.main([str(path), "--docs", str(tmp_path)])
    made = interrupt_after(9, monkeypatch)
    main([*words, "--resume"])
    assert kept() == [(number, peer) for number in range(3) for peer in ("aiolock", "bare")]
    assert len(made) == 4


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


async def test_commands_that_the_scripts_of_a_peer_call_are_not_counted_as_sent(server: Server, redis: Redis) -> None:
    async with aclosing(Observer(server.url, frozenset({"set"}))) as observer:
        await observer.prepare()
        await redis.eval("redis.call('SET', KEYS[1], '1')", 1, "orders")
        assert await observer.sent() == 1


@pytest.mark.parametrize("name", ["aiolock", "bare", "batcher", "redis-py", "redis-py-default-pool"])
async def test_an_adapter_holds_and_frees(server: Server, name: str) -> None:
    async with peers.make(name, server.url, 2, 30) as peer:
        held = f"held-by-{name}"
        lock = peer.lock(held)
        for _ in range(2):
            async with lock, Redis.from_url(server.url) as redis:
                assert await redis.exists(held) == 1


@pytest.mark.parametrize("workload", ["B18", "B19"])
async def test_a_request_in_process_that_fails_is_reported(
    server: Server, workload: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise LookupError

    monkeypatch.setattr(endpoint.Work, "handle", fail)
    outcome = await measure(Run(workload, "no-lock", "asyncio", server.url, 0.1, {"keys": 20}))
    assert outcome.problem is not None
    assert "500" in outcome.problem


def test_every_workload_names_known_peers_and_a_figure() -> None:
    for key, workload in WORKLOADS.items():
        assert set(workload.peers) | set(workload.quick_peers) | set(workload.special) <= set(peers.NAMES)
        assert set(workload.quick_peers) <= set(workload.peers)
        assert any(each.workload == key for each in FIGURES)
        assert compared(key) <= set(workload.peers)


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


def test_rounds_of_two_sessions_are_different_rounds() -> None:
    wanted = figure("B1", "seconds_per_section", "bare")
    records = sessions.records_of(
        session(made("B1", "aiolock", seconds_per_section=ours), made("B1", "bare", seconds_per_section=theirs))
        for ours, theirs in ((2.0, 1.0), (9.0, 3.0))
    )
    assert wanted.measured(records, "asyncio") == (2.0, 2.5, 3.0)


def test_a_run_with_a_problem_counts_in_no_ratio() -> None:
    wanted = figure("B1", "seconds_per_section", "bare")
    records = [made("B1", "aiolock", seconds_per_section=2.0), made("B1", "bare", problem="x", seconds_per_section=1.0)]
    assert wanted.measured(records, "asyncio") is None


def test_the_page_has_the_figures_the_failures_and_the_peers_that_are_ahead(tmp_path: Path) -> None:
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
    sessions.write(
        path, [session(*records), session(made("B17", "aiolock") | {"server": "redis 7.0.15"}, commit="4567def")]
    )
    page.main([str(path), "--docs", str(tmp_path)])
    text = (tmp_path / "benchmarks.md").read_text("utf-8")
    assert "| B1 | time of a section / two bare EVALSHA | ≤ 0.8 × | **2** × ✗ |" in text
    assert "Ahead of aiolock here: `redis-py` (tasks: 1) by 4 ×." in text
    assert "`redis-py-default-pool` (tasks: 1,000) failed in 1 of 1 runs: 900 × MaxConnectionsError" in text
    assert "abacus" in text
    assert "| `bare` | not measured |" in text.split("\n## B2: ")[1]
    assert "\nMeasured on redis 7.0.15, at commit `4567def`.\n" in text.split("\n## B17: ")[1]
    assert "\nMeasured on valkey 9.1.2, at commit `0123abc`.\n" in text.split("\n## B8: ")[1].split("\n## B9: ")[0]
    assert "\nNot measured.\n" in text.split("\n## B16: ")[1].split("\n## B17: ")[0]
    assert "**One task alone**: a section takes 2 × the time of one with redis-py's Lock." in text
    assert "Other libraries are ahead of aiolock here: B1 `redis-py` (tasks: 1) by 4 ×." in text
    pictures = re.findall(r"!\[.*\]\((.*)\)", text.split("\n## Figures")[0])
    assert pictures == [f"benchmarks/{name}.svg" for name in ("throughput", "hand-off", "waiters")]
    for picture in pictures:
        drawn = ElementTree.parse(tmp_path / picture).getroot()
        assert any("prefers-color-scheme: dark" in (style.text or "") for style in drawn.iter(f"{{{SVG}}}style"))


@pytest.mark.parametrize(("beside", "told"), [([3000], "by 2 ×"), ([], "by 1.5 ×, of another day")])
def test_a_peer_is_ahead_by_the_session_that_measured_both_if_there_is_one(beside: list[float], told: str) -> None:
    theirs = made("B1", "redis-py", sections_per_second=6000)
    ours = (made("B1", "aiolock", sections_per_second=each) for each in beside)
    newest = session(made("B1", "aiolock", sections_per_second=4000), commit="4567def")
    assert f"Ahead of aiolock here: `redis-py` (tasks: 1) {told}.\n" in page.page(
        [newest, session(theirs, *ours)], [], {}
    )


def test_the_page_has_remembered_figures_beside_the_present_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "HISTORY", tmp_path / "history.json")
    path = tmp_path / "results.json"

    def write(seconds: float, *words: str) -> str:
        records = (made("B1", "aiolock", seconds_per_section=seconds), made("B1", "bare", seconds_per_section=1.0))
        sessions.write(path, [session(*records)])
        page.main([str(path), "--docs", str(tmp_path), *words])
        return (tmp_path / "benchmarks.md").read_text("utf-8")

    assert "Before and after" not in write(3.0, "--remember", "slow")
    text = write(2.0)
    assert "| workload | figure | slow, asyncio | this page, asyncio |" in text
    assert "| B1 | time of a section / two bare EVALSHA | 3 × | 2 × |" in text


def test_the_same_results_make_the_same_files(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    sessions.write(path, [session(made("B8", "aiolock", median=0.001))])
    contents = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        page.main([str(path), "--docs", str(tmp_path / name)])
        contents.append([each.read_bytes() for each in sorted((tmp_path / name).rglob("*.*"))])
    assert contents[0] == contents[1]
    assert len(contents[0]) == 2


def test_page_and_readme_have_the_figures_of_the_results_that_they_are_made_from() -> None:
    text = (page.DOCS / "benchmarks.md").read_text("utf-8")
    results = sessions.read(page.HISTORY.with_name("all.json"))
    kept = [line for line in page.page(results, [], json.loads(page.HISTORY.read_text("utf-8"))).splitlines() if line]
    assert [line for line in kept if line not in text.splitlines()] == []
    records = sessions.records_of(results)
    made = readme.README.read_text("utf-8").partition(readme.BEGIN)[2].partition(readme.END)[0]
    assert made.strip() == readme.table(records).strip()
    assert "not measured" not in made


def test_the_page_is_short_and_begins_with_its_conclusions() -> None:
    text = (page.DOCS / "benchmarks.md").read_text("utf-8")
    assert sum(len(line.split()) for line in text.splitlines() if not line.startswith("|")) <= 1500
    titles = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert titles[:3] == ["What a lock costs", "What to conclude", "Figures to reach"]
    assert titles[-1] == "Before you compare"


def test_every_library_is_described() -> None:
    assert set(peers.LIBRARIES) == set(page.LIBRARIES) - {"redisson-async"}


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
