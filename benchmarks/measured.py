"""The words of the page on where its figures come from: the commits, the servers, the machines, the versions."""

from collections.abc import Iterable, Sequence

from benchmarks.figures import Record
from benchmarks.sessions import Session


def newest(sessions: Sequence[Session]) -> str:
    """The newest commit, and the day on which it was measured."""
    last = max(sessions, key=lambda each: str(each["day"]))
    return f"`{last['commit']}`, on {last['day']}"


def of_workload(records: Sequence[Record], sessions: Sequence[Session]) -> str:
    """The servers and the commits of a workload's records."""
    commits = _each(f"`{sessions[record['session']]['commit']}`" for record in records)
    return f"Measured on {_each(record['server'] for record in records)}, at commit {commits}."


def table(sessions: Sequence[Session]) -> str:
    """A line for each session."""
    return "\n".join(map(_line, sessions))


def _line(session: Session) -> str:
    records = session["records"]
    workloads = sorted({record["workload"] for record in records}, key=lambda each: int(each[1:]))
    rounds = max(record["round"] for record in records) + 1
    seconds = " or ".join(f"{each:g}" for each in sorted({record["seconds"] for record in records}))
    servers = _each(record["server"] for record in records)
    about = (f"`{session['commit']}`", session["day"], servers, session["machine"]["processor"])
    return f"| {' | '.join(about)} | {rounds} | {seconds} | {', '.join(workloads)} |"


def versions(sessions: Sequence[Session]) -> str:
    """A line for each fact that is not in the other table."""
    lines = []
    for part, form in (("machine", "{}"), ("peers", "`{}`")):
        names = dict.fromkeys(name for each in sessions for name in each[part] if name != "processor")
        for name in names:
            lines.append(f"| {form.format(name)} | {_each(each[part].get(name) for each in sessions)} |")
    return "\n".join(lines)


def _each(words: Iterable[str | None]) -> str:
    """Each of the words, once."""
    return ", ".join(dict.fromkeys(word for word in words if word))
