"""
Two holders, one of whom is late, read and write in every order, with each way of fencing that the pages show.

The accepted steps must have the effect of one holder after the other: the same answers, and the same stored data.
"""

import asyncio
import runpy
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import Response
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

import aiolock
from examples.demo.account import Account, StaleTokenError
from tests.docs.pages import ROOT
from tests.integrations.recipes.recipe import recipe

# The stale holder was paused, and its steps may come at any time.
STALE, NEWER = 33, 34
# The first step of a holder reads.
ORDERS = sorted(set(permutations((STALE, STALE, NEWER, NEWER))))
AMOUNTS = {STALE: 10, NEWER: 50}


@dataclass
class Resource:
    """The data of the holders: `work` reads, does *long_work*, and writes; `state` has the result."""

    work: Callable[[int], Awaitable[Any]]
    state: Callable[[], Any]
    refusal: type[Exception]


class Holder:
    """A holder that works with *token*, in two steps."""

    def __init__(self, resource: Resource, token: int) -> None:
        self.token = token
        self._resource = resource
        self._waits, self._turn = asyncio.Event(), asyncio.Event()
        self._task: asyncio.Task[Any] | None = None

    async def step(self) -> Any:
        """The answer to the holder that ended in this step; ``None`` if it has not ended, or was refused."""
        if self._task is None:
            acting.set(self)
            self._task = asyncio.ensure_future(self._resource.work(self.token))
            waits = asyncio.create_task(self._waits.wait())
            await asyncio.wait([self._task, waits], return_when=asyncio.FIRST_COMPLETED)
            waits.cancel()
        elif not self._task.done():
            self._turn.set()
            await asyncio.wait([self._task])
        else:
            return None
        return self._outcome()

    def _outcome(self) -> Any:
        assert self._task is not None
        if not self._task.done() or isinstance(self._task.exception(), self._resource.refusal):
            return None
        return ("told", self._task.result())

    async def turn(self) -> None:
        self._waits.set()
        await self._turn.wait()


acting: ContextVar[Holder] = ContextVar("acting")


async def long_work(*seen: object) -> int:
    """The work of a holder between reading and writing, which lasts until the test goes on."""
    await acting.get().turn()
    return AMOUNTS[acting.get().token]


async def play(resource: Resource, order: tuple[int, ...]) -> dict[int, Any]:
    """Let the holders take their steps in that order; return the answers to accepted holders, in the order of ends."""
    holders = {token: Holder(resource, token) for token in order}
    told = {}
    for token in order:
        if outcome := await holders[token].step():
            told[token] = outcome
    return told


# The ways of fencing on the pages.


def block(page: str, containing: str, **given: object) -> Any:
    """The names of the block of *page*, run with those that are *given*."""
    names: dict[str, Any] = {"__name__": "page", "aiolock": aiolock, "long_work": long_work, **given}
    exec(recipe(page, containing, "").replace("asyncio.run(main())", ""), names)
    return SimpleNamespace(**names)


def rows(path: Path, query: str) -> Callable[[], Any]:
    def select() -> Any:
        with closing(sqlite3.connect(path)) as database:
            return database.execute(query).fetchall()

    return select


def lease(token: int) -> Any:
    return SimpleNamespace(name="account:7", token=token, check=lambda: None)


@asynccontextmanager
async def concept(directory: Path) -> AsyncIterator[Resource]:
    page = block("../concepts/fencing.md", "def read(token: int)")

    async def work(token: int) -> None:
        balance = page.read(token)
        page.write(balance + await long_work(), token)

    with closing(page.database):
        yield Resource(
            work, lambda: page.database.execute("select balance from account").fetchall(), page.StaleTokenError
        )


@asynccontextmanager
async def plain_sql(directory: Path) -> AsyncIterator[Resource]:
    with closing(sqlite3.connect(directory / "sql.db")) as database:
        database.executescript("create table account (id, balance); insert into account values (7, 100)")
        page = block("recipes/fenced-writes.md", "def register(lease", database=database, fee_of=long_work)
        state = rows(directory / "sql.db", "select balance from account")
        yield Resource(lambda token: page.take_fee(lease(token)), state, page.StaleTokenError)


@asynccontextmanager
async def sqlalchemy(directory: Path) -> AsyncIterator[Resource]:
    page = block("recipes/fenced-writes.md", "sqlalchemy.orm", fee_of=long_work)
    engine = create_async_engine(f"sqlite+aiosqlite:///{directory / 'orm.db'}")
    sessions = async_sessionmaker(engine, expire_on_commit=False)
    async with engine.begin() as connection:
        await connection.run_sync(page.Base.metadata.create_all)
    async with sessions.begin() as session:
        session.add(page.Account(id=7, balance=100))
    state = rows(directory / "orm.db", "select balance from account")
    yield Resource(lambda token: page.take_fee(sessions, lease(token)), state, page.StaleTokenError)
    await engine.dispose()


@asynccontextmanager
async def leader(directory: Path) -> AsyncIterator[Resource]:
    code = recipe("recipes/leader.md", "def take_over(", "").replace('"reports.db"', f'"{directory / "reports.db"}"')
    names: dict[str, Any] = {}
    exec(code, names)

    async def work(token: int) -> None:
        total = names["take_over"](token)
        names["write"](total + await long_work(), token)

    with closing(names["database"]):
        yield Resource(work, rows(directory / "reports.db", "select total from reports"), RuntimeError)


@asynccontextmanager
async def payments(directory: Path) -> AsyncIterator[Resource]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DATABASE", str(directory / "payments.db"))
        names = runpy.run_path(str(ROOT / "examples/payments/main.py"))
    names["create_tables"]()
    names["pay"].__globals__["charge"] = long_work

    async def work(token: int) -> Any:
        response = Response(status_code=201)
        payment = await names["pay"](42, names["Amount"](cents=AMOUNTS[token]), response, lease(token))
        return response.status_code, payment.cents

    yield Resource(work, rows(directory / "payments.db", "select * from charges"), names["TooLateError"])


@asynccontextmanager
async def seats(directory: Path) -> AsyncIterator[Resource]:
    names = runpy.run_path(str(ROOT / "examples/seats/main.py"))
    hall = names["Hall"](str(directory / "seats.db"))

    async def work(token: int) -> Any:
        if (other := hall.buyer("1A", token)) is not None:
            return 409, other
        hall.sell("1A", f"buyer of {await long_work()}", token)
        return 201, None

    with closing(hall):
        yield Resource(work, hall.sold, names["TooLateError"])


@asynccontextmanager
async def demo(directory: Path) -> AsyncIterator[Resource]:
    account = Account(directory)
    account.create()

    async def work(token: int) -> None:
        balance = account.read(token)
        account.write(balance + await long_work(), token)

    yield Resource(work, account.balance, StaleTokenError)


@asynccontextmanager
async def job_per_slot(directory: Path) -> AsyncIterator[Resource]:
    with closing(sqlite3.connect(directory / "jobs.db", isolation_level=None)) as database:
        database.executescript("create table jobs (name primary key, slot); create table reports (slot, total)")
        page = block("recipes/periodic-job.md", "def commit(", database=database)

        async def work(token: int) -> None:
            ((slot,),) = database.execute("select slot from jobs").fetchall()
            page.commit(slot + 1, await long_work())

        yield Resource(work, rows(directory / "jobs.db", "select * from reports"), RuntimeError)


@asynccontextmanager
async def only_when_writing(directory: Path) -> AsyncIterator[Resource]:
    """The page about fencing warns of this way."""
    with closing(sqlite3.connect(directory / "wrong.db", isolation_level=None)) as database:
        database.executescript("create table account (balance, fence); insert into account values (100, 0)")

        async def work(token: int) -> None:
            ((balance,),) = database.execute("select balance from account").fetchall()
            new = balance + await long_work()
            query = "update account set balance = ?, fence = ? where fence <= ?"
            if database.execute(query, (new, token, token)).rowcount == 0:
                raise RuntimeError

        yield Resource(work, rows(directory / "wrong.db", "select balance from account"), RuntimeError)


Pattern = Callable[[Path], AbstractAsyncContextManager[Resource]]
FENCED: list[Pattern] = [concept, plain_sql, sqlalchemy, leader, payments, seats, demo]


async def told_and_right(pattern: Pattern, order: tuple[int, ...], directory: Path) -> tuple[dict[int, Any], bool]:
    """The answers to accepted holders, and whether answers and data are the same as after a run one by one."""
    for name in ("together", "in_turn"):
        (directory / name).mkdir(parents=True)
    async with pattern(directory / "together") as together, pattern(directory / "in_turn") as in_turn:
        told = await play(together, order)
        alone = await play(in_turn, tuple(token for token in told for _ in range(2)))
        return told, (told, together.state()) == (alone, in_turn.state())


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("pattern", FENCED)
async def test_accepted_writes_are_as_if_done_in_turn(pattern: Pattern, order: tuple[int, ...], tmp_path: Path) -> None:
    told, right = await told_and_right(pattern, order, tmp_path)
    assert right
    assert NEWER in told, "the holder with the lock was refused"
    assert (STALE in told) == (order == (STALE, STALE, NEWER, NEWER)), "a late holder was accepted"


async def test_a_slot_has_one_report_though_either_worker_may_be_late(tmp_path: Path) -> None:
    """Without a token, the second writer is refused, who may be the newer holder."""
    for number, order in enumerate(ORDERS):
        told, right = await told_and_right(job_per_slot, order, tmp_path / str(number))
        assert told
        assert right


async def test_a_token_that_is_shown_only_when_writing_loses_a_write(tmp_path: Path) -> None:
    """This file finds the lost write, so that it would find one in the other ways, too."""
    outcomes = [await told_and_right(only_when_writing, order, tmp_path / str(n)) for n, order in enumerate(ORDERS)]
    wrong = [order for order, (_, right) in zip(ORDERS, outcomes, strict=True) if not right]
    assert wrong == [(STALE, NEWER, STALE, NEWER), (NEWER, STALE, STALE, NEWER)]
