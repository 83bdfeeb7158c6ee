"""Connection: one to the server, kept while its user is busy; a new one is made after a failure."""

import asyncio
import gc
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from time import monotonic
from typing import Any

import hiredis
import pytest
from redis import AuthenticationError, ResponseError
from redis import ConnectionError as RedisConnectionError
from redis.asyncio import Connection as RedisConnection
from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.connection import AbstractConnection

from aiolock import LockClient
from aiolock._embedded_server import Server
from aiolock._redis.connection import Connection
from aiolock._redis.connector import Connector
from aiolock._redis.user import Command
from tests.support.contexts import outlives_its_task
from tests.support.observe import connected, until, until_connected
from tests.support.proxy import Proxy, Rule, command, drop_reply

PATIENCE = 0.4
PULSE = 0.02


class Recorder:
    """A user of a connection that writes what it is given and notes what happens."""

    def __init__(self, connect: Callable[[], Any], *, pulse: float = PULSE) -> None:
        self.wanted = False
        self.to_send: list[Command] = []
        self.frames: list[Any] = []
        self.errors: list[Exception] = []
        self.opens: list[float] = []
        self.ticks = 0
        self.writes: list[int] = []
        self.connection = Connection(self, connect, patience=PATIENCE, pulse=pulse)

    def send(self, *commands: Command) -> None:
        self.wanted = True
        self.to_send += commands
        self.connection.wake()

    async def answer(self, *words: str) -> Any:
        """Send a command and return what comes next."""
        expected = len(self.frames) + 1
        self.send(words)
        await until(lambda: len(self.frames) >= expected)
        return self.frames[-1]

    def busy(self) -> bool:
        return self.wanted

    async def greet(self, connection: AbstractConnection) -> None:
        pass

    def opened(self, took: float) -> None:
        self.opens.append(monotonic())

    def has_work(self) -> bool:
        return sum(self.writes) + len(self.to_send) > len(self.frames)

    def outgoing(self) -> Sequence[Command]:
        batch, self.to_send = self.to_send, []
        self.writes += [len(batch)] if batch else []
        return batch

    def received(self, frame: Any) -> int:
        self.frames.append(frame)
        return 1

    def broken(self, error: Exception, waited: float) -> None:
        self.errors.append(error)

    def tick(self, now: float) -> None:
        self.ticks += 1


@pytest.fixture
async def user(proxy: Proxy) -> AsyncIterator[Recorder]:
    user = Recorder(Connector.of(Redis.from_url(proxy.url), "linked", 5))
    yield user
    await user.connection.aclose()


async def test_a_connection_is_made_when_its_user_has_something_to_send(proxy: Proxy, user: Recorder) -> None:
    assert not user.connection.connected
    assert not proxy.connections
    assert await user.answer("PING") == b"PONG"
    assert user.connection.connected
    assert len(user.opens) == 1


async def test_commands_of_one_turn_leave_in_one_write(user: Recorder) -> None:
    await user.answer("PING")
    user.send(("ECHO", "a"), ("ECHO", "b"))
    user.send(("ECHO", "c"))
    await until(lambda: len(user.frames) == 4)
    assert user.frames[1:] == [b"a", b"b", b"c"]
    assert user.writes == [1, 3]


async def test_it_does_not_keep_the_context_of_its_first_user(proxy: Proxy) -> None:
    """Neither its reader nor its writer nor its timer keeps the context."""
    user = Recorder(Connector.of(Redis.from_url(proxy.url), None, 5), pulse=60)
    assert not await outlives_its_task(lambda: user.answer("PING"))
    assert await user.answer("PING") == b"PONG"
    await user.connection.aclose()


async def test_other_tasks_have_a_turn_within_a_burst_of_replies(
    user: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    await user.answer("PING")
    raw = user.connection.raw
    assert raw is not None
    read, burst = raw.read_response, iter([b"there at once"] * 256)

    async def read_response(**how: Any) -> Any:
        return next(burst, None) or await read(**how)

    monkeypatch.setattr(raw, "read_response", read_response)
    user.send(("PING",))
    turns: set[int] = set()
    while len(user.frames) < 2 + 256:
        turns.add(len(user.frames))
        await asyncio.sleep(0)
    assert [read for read in turns if 2 <= read < 2 + 256]


async def test_an_error_reply_is_a_frame_like_any_other(user: Recorder) -> None:
    assert isinstance(await user.answer("NOSUCHCOMMAND"), ResponseError)
    assert await user.answer("PING") == b"PONG"
    assert user.errors == []


async def test_a_connection_that_dies_is_made_again_while_its_user_is_busy(proxy: Proxy, user: Recorder) -> None:
    await user.answer("PING")
    proxy.reset_all()
    await until(lambda: len(user.opens) == 2)
    assert len(user.errors) == 1
    assert isinstance(user.errors[0], (RedisConnectionError, OSError))
    assert await user.answer("PING") == b"PONG"


async def test_a_connection_that_dies_is_not_made_again_while_its_user_is_idle(proxy: Proxy, user: Recorder) -> None:
    await user.answer("PING")
    user.wanted = False
    proxy.reset_all()
    await until(lambda: len(user.errors) == 1)
    await asyncio.sleep(5 * PULSE)
    assert not user.connection.connected
    assert len(user.opens) == 1
    assert await user.answer("PING") == b"PONG"


async def test_a_connection_that_is_closed_by_the_server_is_noticed(redis: Redis, user: Recorder) -> None:
    await user.answer("PING")
    await redis.client_kill_filter(_type="normal", skipme=True)
    await until(lambda: len(user.opens) == 2)


async def test_a_connection_that_was_given_up_is_made_again(proxy: Proxy, user: Recorder) -> None:
    proxy.install(Rule(command(b"ECHO"), drop_reply(reset=False)))
    await user.answer("PING")
    user.send(("ECHO", "x"))
    await proxy.saw(command(b"ECHO"))
    user.connection.fail()
    await until(lambda: len(user.opens) == 2)
    assert isinstance(user.errors[0], TimeoutError)
    assert await user.answer("PING") == b"PONG"
    await until(lambda: len(proxy.connections) == 1)


async def test_giving_up_no_connection_does_nothing(user: Recorder) -> None:
    user.connection.fail()
    assert await user.answer("PING") == b"PONG"


async def test_nothing_is_written_on_a_connection_that_was_given_up(proxy: Proxy, user: Recorder) -> None:
    await user.answer("PING")
    user.connection.fail()
    assert await user.answer("ECHO", "x") == b"x"
    [echo] = [request for request in proxy.requests if request.name == b"ECHO"]
    [ping] = [request for request in proxy.requests if request.name == b"PING"]
    assert echo.connection != ping.connection


class Choked:
    """A transport in place of the open connection's, which takes data when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.relieved = asyncio.Event()
        self.given_up = False
        self._send = AbstractConnection.send_packed_command
        monkeypatch.setattr(AbstractConnection, "send_packed_command", lambda *data, **how: self._send_later(*data))

    async def _send_later(self, raw: AbstractConnection, data: bytes) -> None:
        try:
            await asyncio.sleep(0)
            await self.relieved.wait()
        except GeneratorExit:
            self.given_up = True
            raise
        await self._send(raw, data, check_health=False)


async def test_commands_wait_for_a_choked_transport_and_leave_in_one_write(
    user: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    await user.answer("PING")
    choked = Choked(monkeypatch)
    user.send(("ECHO", "first"))
    await until(lambda: user.writes == [1, 1])
    for word in ("second", "third"):
        user.send(("ECHO", word))
        await asyncio.sleep(0)
    assert len(user.to_send) == 2
    choked.relieved.set()
    await until(lambda: user.frames[1:] == [b"first", b"second", b"third"])
    assert user.writes == [1, 1, 2]


async def test_commands_that_a_choked_transport_does_not_take_are_given_up_with_the_connection(
    user: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    await user.answer("PING")
    choked = Choked(monkeypatch)
    user.send(("ECHO", "unheard"))
    await until(lambda: user.writes == [1, 1])
    user.connection.fail()
    await until(lambda: choked.given_up)
    choked.relieved.set()
    await until(lambda: len(user.opens) == 2)
    assert await user.answer("ECHO", "heard") == b"heard"


async def test_a_connection_that_dies_while_it_is_choked_is_followed_by_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The error of the wait for the transport has a reader: asyncio would log it otherwise."""
    with Server() as frozen:
        user = Recorder(Connector.of(Redis.from_url(frozen.url), None, 5))
        await user.answer("PING")
        frozen.pause()
        user.send(("SET", "much", b"x" * 30_000_000))
        await until(lambda: user.writes == [1, 1])
        frozen.kill()
        await until(lambda: len(user.errors) > 0)
        await user.connection.aclose()
    gc.collect()
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []


@pytest.mark.parametrize("error", [OSError, TypeError, asyncio.CancelledError])
async def test_a_connection_that_cannot_be_written_to_is_followed_by_another(
    user: Recorder, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    send, errors = AbstractConnection.send_packed_command, [error]

    async def fail_once(connection: AbstractConnection, *args: Any, **how: Any) -> None:
        if errors:
            raise errors.pop()
        await send(connection, *args, **how)

    await user.answer("PING")
    monkeypatch.setattr(AbstractConnection, "send_packed_command", fail_once)
    user.send(("ECHO", "unheard"))
    await until(lambda: len(user.opens) == 2)
    assert await user.answer("PING") == b"PONG"


@pytest.mark.parametrize("error", [TypeError, KeyboardInterrupt])
async def test_commands_that_did_not_leave_end_the_connection(
    user: Recorder, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    """Their replies would be taken for those of later commands."""

    def fail(command: Command) -> bytes:
        raise error

    await user.answer("PING")
    user.to_send = [("ECHO", "unheard")]
    with monkeypatch.context() as broken, pytest.raises(error):
        broken.setattr(hiredis, "pack_command", fail)
        user.connection.wake(at_once=True)
    await until(lambda: len(user.errors) == 1)
    assert await user.answer("PING") == b"PONG"
    assert len(user.opens) == 2


async def test_a_connection_class_with_a_time_limit_for_sending_is_written_to(server: Server) -> None:
    class Limited(RedisConnection):
        async def send_packed_command(self, *args: Any, **how: Any) -> None:
            async with asyncio.timeout(5):
                await super().send_packed_command(*args, **how)

    pool = ConnectionPool.from_url(server.url, connection_class=Limited)
    user = Recorder(Connector.of(Redis(connection_pool=pool), None, 5))
    for word in "abc":
        assert await user.answer("ECHO", word) == word.encode()
    assert user.errors == []
    await user.connection.aclose()


async def test_a_connection_that_cannot_be_made_is_tried_again_less_and_less_often(
    proxy: Proxy, user: Recorder
) -> None:
    await proxy.refuse()
    times: list[float] = []
    user.broken = lambda error, waited: times.append(monotonic())  # type: ignore[method-assign]
    user.send(("PING",))
    await until(lambda: len(times) == 9)
    pauses = [after - before for before, after in pairwise(times)]
    assert pauses[0] < 0.1
    assert pauses[-1] > PATIENCE * 0.4
    assert not user.connection.connected
    await proxy.accept()
    await until(lambda: user.frames == [b"PONG"])


async def test_a_call_that_hurries_an_attempt_on_its_way_hurries_the_next_one(proxy: Proxy, user: Recorder) -> None:
    """The attempt on its way may have begun before the server was started."""
    await proxy.refuse()
    attempts: list[float] = []

    def hurry(error: Exception, waited: float) -> None:
        attempts.append(waited)
        user.connection.hurry()

    user.broken = hurry  # type: ignore[method-assign]
    connect = Connector.of(Redis.from_url(proxy.url), "linked", 5)
    # Without the hurry, the pauses of so many attempts would take minutes.
    user.connection = Connection(user, connect, patience=1000, pulse=PULSE)
    user.send(("PING",))
    await until(lambda: len(attempts) == 20)


async def test_a_connection_that_its_class_does_not_make_is_tried_again(redis: Redis, server: Server) -> None:
    """The class fails before there is anything to await."""
    connect, failures = Connector.of(Redis.from_url(server.url), None, 5), [OSError("no"), ValueError("neither")]

    def connect_at_last() -> AbstractConnection:
        if failures:
            raise failures.pop()
        return connect()

    user = Recorder(connect_at_last)
    assert await user.answer("PING") == b"PONG"
    assert [type(error) for error in user.errors] == [ValueError, OSError]
    await user.connection.aclose()


async def test_a_server_that_accepts_and_says_nothing_is_given_up(proxy: Proxy, user: Recorder) -> None:
    proxy.black_hole()
    user.send(("PING",))
    await until(lambda: len(user.errors) == 1)
    assert isinstance(user.errors[0], TimeoutError)
    assert user.opens == []
    proxy.restore()
    await until(lambda: user.frames == [b"PONG"])


async def test_a_server_that_is_reached_and_needs_longer_than_the_patience_is_connected_to_in_the_end(
    proxy: Proxy, user: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example, the credentials come from a service that takes its time for each connection."""
    takes = 1.5 * PATIENCE

    async def greet(connection: AbstractConnection) -> None:
        await asyncio.sleep(takes)

    monkeypatch.setattr(user, "greet", greet)
    assert await user.answer("PING") == b"PONG"
    assert [type(error) for error in user.errors] == [TimeoutError], "the first attempt had the patience and no more"
    proxy.reset_all()
    await until(lambda: len(user.opens) == 2)
    assert len(user.errors) == 2, "the next attempt had as much time as the connection before had needed"


async def test_a_refused_password_is_reported(server: Server) -> None:
    user = Recorder(Connector.of(Redis.from_url(server.url, password="wrong"), None, 5))
    user.send(("PING",))
    await until(lambda: bool(user.errors))
    assert isinstance(user.errors[0], AuthenticationError)
    await user.connection.aclose()


async def test_it_ticks_while_its_user_is_busy_only(user: Recorder) -> None:
    await user.answer("PING")
    before = user.ticks
    await until(lambda: user.ticks >= before + 3)
    user.wanted = False
    await asyncio.sleep(2 * PULSE)
    ticks = user.ticks
    await asyncio.sleep(5 * PULSE)
    assert user.ticks == ticks
    user.send(("PING",))
    await until(lambda: user.ticks > ticks)


async def test_closing_closes_the_connection(redis: Redis, proxy: Proxy, user: Recorder) -> None:
    alone = await connected(redis)
    await user.answer("PING")
    assert await connected(redis) == alone + 1
    await user.connection.aclose()
    assert not user.connection.connected
    await until_connected(redis, alone)
    user.send(("PING",))
    assert len(user.opens) == 1


async def test_closing_while_it_connects_ends_at_once(proxy: Proxy, user: Recorder) -> None:
    proxy.black_hole()
    user.send(("PING",))
    await until(lambda: len(proxy.connections) == 1)
    await user.connection.aclose()
    assert user.errors == [], "closing did not wait until the attempt failed"
    proxy.restore()


@pytest.mark.parametrize("settings", [{}, {"decode_responses": True, "protocol": 3, "socket_timeout": 0.1}], ids=str)
async def test_connections_do_not_decode_and_are_never_timed_out(server: Server, settings: dict[str, Any]) -> None:
    user = Recorder(Connector.of(Redis.from_url(server.url, health_check_interval=1, **settings), "linked", 5))
    assert await user.answer("ECHO", "x") == b"x"
    assert await user.answer("CLIENT", "GETNAME") == b"linked"
    # RESP3 would answer with a map.
    assert isinstance(await user.answer("HELLO"), list)
    await asyncio.sleep(0.15)
    assert await user.answer("PING") == b"PONG"
    assert len(user.opens) == 1
    await user.connection.aclose()


async def test_a_reader_that_is_cancelled_from_outside_ends_when_every_reply_has_come(
    proxy: Proxy, user: Recorder
) -> None:
    """asyncio.run cancels every task that is left: last words are still written, and their answers are read."""
    await user.answer("PING")
    before = asyncio.all_tasks()
    for task in before - {asyncio.current_task()}:
        if "_redis/connection.py" in repr(task):
            task.cancel()
    user.send(("ECHO", "last words"))
    await until(lambda: user.connection.stopped)
    assert user.frames[1:] == [b"last words"]
    assert not [task for task in asyncio.all_tasks() if "_redis/connection.py" in repr(task)]


async def test_a_command_that_comes_after_the_reader_was_cancelled_and_has_ended_is_answered(user: Recorder) -> None:
    """A task may send a release so late, at the end of a loop."""
    await user.answer("PING")
    [reader] = [task for task in asyncio.all_tasks() if "<Connection._run()" in repr(task)]
    reader.cancel()
    await until(lambda: user.connection.stopped)
    user.send(("ECHO", "last words"))
    await until(lambda: user.frames[1:] == [b"last words"])
    await until(lambda: user.connection.stopped)
    assert not [task for task in asyncio.all_tasks() if "_redis/connection.py" in repr(task)]


async def test_a_reader_that_has_ended_with_the_loop_does_not_begin_again_for_nothing(user: Recorder) -> None:
    """The loop would destroy such a reader, with a message, while calls that nobody awaits may still be sent again."""
    await user.answer("PING")
    [reader] = [task for task in asyncio.all_tasks() if "<Connection._run()" in repr(task)]
    reader.cancel()
    await until(lambda: user.connection.stopped)
    user.connection.wake()
    assert not [task for task in asyncio.all_tasks() if "_redis/connection.py" in repr(task)]


@pytest.mark.parametrize("turns", range(5))
async def test_a_command_after_a_reader_that_the_ticker_ended_is_answered(user: Recorder, turns: int) -> None:
    """The loop stands still while the cancelled reader closes its connection, so that the ticker finds it there."""
    await user.answer("PING")
    [reader] = [task for task in asyncio.all_tasks() if "<Connection._run()" in repr(task)]
    reader.cancel()
    for _ in range(turns):
        await asyncio.sleep(0)
    time.sleep(2 * PULSE)
    await until(lambda: user.connection.stopped)
    user.send(("ECHO", "last words"))
    await until(lambda: user.frames[1:] == [b"last words"])


async def test_a_reader_that_is_cancelled_twice_from_outside_ends_at_once(proxy: Proxy, user: Recorder) -> None:
    await user.answer("PING")
    proxy.black_hole()
    user.send(("ECHO", "unheard"))
    [reader] = [task for task in asyncio.all_tasks() if "<Connection._run()" in repr(task)]
    for _ in range(2):
        reader.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    await asyncio.wait_for(asyncio.wait([reader]), 5)
    assert user.connection.stopped
    proxy.restore()


def test_a_host_name_is_looked_up_when_a_thread_of_the_executor_is_free(server: Server) -> None:
    """In the loop of asyncio; uvloop looks names up in threads of its own."""
    gate = threading.Event()

    async def connect() -> None:
        threads = ThreadPoolExecutor(1)
        asyncio.get_running_loop().set_default_executor(threads)
        busy = asyncio.create_task(asyncio.to_thread(gate.wait))
        async with LockClient.from_url(server.url.replace("127.0.0.1", "localhost")) as locks:
            acquiring = asyncio.create_task(locks.lock("orders", owner="job").acquire())
            await until(lambda: threads._work_queue.qsize() > 0)
            assert locks.statistics().connections == 0
            gate.set()
            await (await acquiring).release()
        await busy

    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.run(connect())
