"""Many processes share each kind that expires, and one of them dies: nobody waits for ever, and no limit is broken."""

from collections import Counter
from pathlib import Path

import pytest
from redis.asyncio import Redis

from aiolock import LockClient
from aiolock._embedded_server import Server
from tests.contract.kinds import LEASED, Kind
from tests.processes.crew import let_work, most_at_once
from tests.processes.kinds import KIND
from tests.support.observe import until

PROCESSES, TASKS, TIMES = 4, 4, 10


@pytest.mark.parametrize("kind", LEASED, ids=repr)
async def test_many_processes_of_which_one_is_killed(
    kind: Kind, server: Server, redis: Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KIND, repr(kind))
    lines, victim = await let_work(
        "tests.processes.kinds", server.url, tmp_path / "sections", processes=PROCESSES, tasks=TASKS, times=TIMES
    )
    visits = [(task, float(entered), float(left)) for task, _, entered, left in map(str.split, lines)]
    served = Counter(task for task, *_ in visits if not task.startswith(f"{victim}-"))
    assert (len(served), set(served.values())) == (PROCESSES * TASKS, {TIMES})
    assert 1 <= most_at_once((entered, left, 1) for _, entered, left in visits) <= kind.most
    async with LockClient(redis) as locks:
        remove = await kind.obstruct(locks)
        await remove()
        await until(lambda: locks.statistics().pending == 0)
