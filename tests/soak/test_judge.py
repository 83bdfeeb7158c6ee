"""The judge notices every broken promise, and nothing else, in journals that are made up."""

from collections.abc import Sequence
from pathlib import Path

from tests.soak.faults import Fault
from tests.soak.journal import READS, Entry, Journal
from tests.soak.judge import Evidence, judge
from tests.soak.lives import Life

BEGIN, END = 100.0, 200.0


def section(
    number: int,
    token: int,
    begin: float,
    end: float | None,
    *,
    until: float = END,
    scoped: bool = True,
    form: str = "scoped",
) -> list[Entry]:
    """Write a stay from *begin* to *end*, or a kill half a second later; the lease is good *until*."""
    enter = Entry("enter", begin, number, "a", token, form, begin, until, renewed=until == END, scoped=scoped)
    marks = [begin + 0.5] if end is None else []
    marked = [Entry("mark", at, number, deadline=until) for at in marks]
    leave = [] if end is None else [Entry("leave", end, number, deadline=until if end < until else 0)]
    return [enter, *marked, *leave]


def findings(
    folder: Path, *lives: list[Entry], faults: Sequence[Fault] = (), seen: Sequence[str] = (), end: float = BEGIN
) -> list[str]:
    """The findings; every worker has to get locks until *end*."""
    folder = folder / str(len(list(folder.iterdir())))
    folder.mkdir()
    for number, entries in enumerate(lives):
        journal = Journal(folder / f"worker-{number}.1.jsonl")
        for entry in sorted(entries, key=lambda entry: entry.at):
            journal.write(entry)
    read = [Life.read(path) for path in sorted(folder.glob("*.jsonl"))]
    return judge(Evidence(read, faults, BEGIN, end, seen))


def only(found: list[str]) -> str:
    assert len(found) == 1, found
    return found[0]


def test_one_after_the_other(tmp_path: Path) -> None:
    assert not findings(tmp_path, section(1, 1, 100, 101), section(1, 2, 101.1, 102))


def test_an_overlap(tmp_path: Path) -> None:
    assert "overlap: of 0.500 s" in only(findings(tmp_path, section(1, 1, 100, 101), section(1, 2, 100.5, 102)))


def test_an_overlap_with_one_that_is_not_the_one_before(tmp_path: Path) -> None:
    found = findings(tmp_path, section(1, 1, 100, 105) + section(2, 2, 101, 102), section(1, 3, 103, 104))
    assert len(found) == 2
    assert all("overlap: of 1.000 s" in each for each in found)


def test_readers_may_meet_each_other_and_nobody_else(tmp_path: Path) -> None:
    reader, before_it = section(1, 2, 100, 102, form=READS), section(1, 1, 100.1, 101, form=READS)
    assert not findings(tmp_path, reader, before_it)
    assert "overlap: of 0.500 s" in only(findings(tmp_path, reader, before_it, section(1, 3, 101.5, 103)))


def test_a_killed_worker_is_inside_until_its_last_mark(tmp_path: Path) -> None:
    killed = section(1, 1, 100, None)
    assert "overlap: of 0.100 s" in only(findings(tmp_path, killed, section(1, 2, 100.4, 102)))


def test_a_killed_worker_is_not_inside_after_its_last_mark(tmp_path: Path) -> None:
    assert not findings(tmp_path, section(1, 1, 100, None), section(1, 2, 100.6, 102))


def test_a_paused_worker_is_inside_until_its_lease_is_over(tmp_path: Path) -> None:
    assert not findings(tmp_path, section(1, 1, 100, 110, until=101), section(1, 2, 101.1, 102))


def test_an_overlap_with_a_lease_that_is_lost_later(tmp_path: Path) -> None:
    paused = section(1, 1, 100, 110, until=101)
    assert "overlap: of 0.500 s" in only(findings(tmp_path, paused, section(1, 2, 100.5, 102)))


def test_a_worker_that_was_granted_too_late_was_never_inside(tmp_path: Path) -> None:
    late = [Entry("enter", 100.5, 1, "a", 1, "scoped", 100, 0), Entry("leave", 101, 1)]
    assert not findings(tmp_path, late, section(1, 2, 100.2, 102))


def test_a_token_that_does_not_grow(tmp_path: Path) -> None:
    for token in (2, 1):
        found = findings(tmp_path, section(1, 2, 100, 101), section(1, token, 101.1, 102))
        assert "token out of order" in only(found)


def test_a_body_that_goes_on_after_the_loss(tmp_path: Path) -> None:
    stays = [*section(1, 1, 100, 103, until=101), Entry("mark", 101.1, 1), Entry("mark", 101.15, 1)]
    assert "told late" in only(findings(tmp_path, stays))


def test_a_body_that_comes_to_one_mark_before_it_is_cancelled(tmp_path: Path) -> None:
    assert not findings(tmp_path, [*section(1, 1, 100, 103, until=101), Entry("mark", 101.1, 1)])


def test_a_task_group_that_unwinds_after_the_loss_while_its_process_is_paused(tmp_path: Path) -> None:
    held = section(1, 1, 100, 103, until=101, form="group")
    assert not findings(tmp_path, [*held, *(Entry("mark", at, 1) for at in (101.1, 101.15, 102.8))])


def test_a_task_group_that_goes_on_after_the_loss(tmp_path: Path) -> None:
    held = section(1, 1, 100, 103, until=101, form="group")
    marks = [Entry("mark", 101 + tick / 20, 1) for tick in range(15)]
    assert "told late" in only(findings(tmp_path, [*held, *marks]))


def test_a_hang_and_a_worker_that_gets_nothing(tmp_path: Path) -> None:
    waits = [Entry("begin", 100), *(Entry("beat", at, asked=101) for at in (101, 105, 120))]
    hang, starved = findings(tmp_path, waits, end=END)
    assert "lasted 19.0 s" in hang
    assert "starved" in starved


def test_a_wait_that_a_fault_explains(tmp_path: Path) -> None:
    fault = Fault("server killed", 101.5, 110, 119)
    waits = [Entry("begin", 100), Entry("beat", 101.3, asked=101), Entry("beat", 120, asked=101)]
    assert not findings(tmp_path, waits, faults=[fault], end=END)


def test_servers_that_are_back_and_not_asked(tmp_path: Path) -> None:
    fault = Fault("planned failover", 101, 114, 115, able=102)
    assert "for 11.0 s" in only(findings(tmp_path, section(1, 1, 113, 114), faults=[fault]))
    assert not findings(tmp_path, section(1, 1, 105, 106), faults=[fault])


def test_a_loss_and_an_error_that_no_fault_explains(tmp_path: Path) -> None:
    lost = section(1, 1, 100, 101)
    lost[-1] = Entry("leave", 101, 1)
    error = Entry("failed", 101, note="BackendError Redis failed")
    found = findings(tmp_path, [*lost, error])
    assert [each.split(":")[0] for each in found] == ["lost without a fault", "failed without a fault"]
    assert not findings(tmp_path, [*lost, error], faults=[Fault("server killed", 100.5, 101, 105)])


def test_remains_and_log_records(tmp_path: Path) -> None:
    entries = [
        Entry("error", 100, note="NotHeldError"),
        Entry("log", 101, form="WARNING", note="aiolock: lock 'a': lost"),
        Entry("log", 102, form="ERROR", note="asyncio: Task was destroyed"),
        Entry("idle", 103, note="held 1"),
        Entry("end", 104, amount=1, note="<Task>"),
    ]
    found = findings(tmp_path, entries, seen=["process: it ended"])
    assert [each.split(":")[0] for each in found] == ["left", "left", "process", "error", "logged"]


def test_memory_that_grows(tmp_path: Path) -> None:
    beats = [Entry("beat", BEGIN + second, amount=30_000 + 500 * second) for second in range(100)]
    assert "grew from 35.0 to 79.5 MB" in only(findings(tmp_path, beats))
