"""The file of results: sessions, each with its records and with the commit, the machine and the versions of them."""

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import machine, peers, redisson, repository
from benchmarks.figures import Record

Session = dict[str, Any]

_SAME = ("commit", "machine", "peers")


def begin(earlier: str) -> Session:
    """A session that begins now, and compares with the aiolock *earlier*."""
    return {
        "commit": repository.commit(),
        "day": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": machine.describe(),
        "peers": peers.versions() | redisson.version() | {f"{peers.OLDER}aiolock": f"aiolock-redis {earlier}"},
        "records": [],
    }


def resumed(sessions: Sequence[Session], session: Session) -> Session:
    """The newest of *sessions* with the commit, the machine and the versions of *session*, which has no records."""
    alike = [each for each in sessions if all(each[part] == session[part] for part in _SAME)]
    return alike[0] if alike else session


def replaced(sessions: Sequence[Session], session: Session) -> list[Session]:
    """The records of *session* take the places of those of the same runs; all others stay, in their sessions."""
    measured = {_kind(record) for record in session["records"]}
    others = ([record for record in each["records"] if _kind(record) not in measured] for each in sessions)
    kept = [each | {"records": records} for each, records in zip(sessions, others, strict=True) if records]
    return [session, *kept]


def read(path: Path) -> list[Session]:
    """The sessions in a file, the newest first."""
    sessions: list[Session] = json.loads(path.read_text("utf-8"))
    return sessions


def write(path: Path, sessions: Sequence[Session]) -> None:
    """Write the file as a whole: an interruption leaves the one from before."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(sessions, indent=1) + "\n", "utf-8")
    new.replace(path)


def records_of(sessions: Iterable[Session]) -> list[Record]:
    """All records, each with the number of its session: rounds of two sessions are different rounds."""
    return [record | {"session": number} for number, each in enumerate(sessions) for record in each["records"]]


def _kind(record: Record) -> str:
    return json.dumps([record[part] for part in ("workload", "peer", "loop", "parameters")])
