"""Link: one connection, kept while its user is busy, made anew when it fails."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import pairwise
from time import monotonic
from typing import Any

import pytest
from redis import AuthenticationError, ResponseError
from redis import ConnectionError as RedisConnectionError
from redis.asyncio import Redis

from aiolock._connector import Connector
from aiolock._link import Link
from aiolock._server import Server
from aiolock._wire import Command
from tests.support.observe import connected, until, until_connected
from tests.support.proxy import Proxy, Rule, command, drop_reply

PATIENCE = 0.4
PULSE = 0.02


class Recorder:
    """A user of a link that writes what it is given and notes what happens."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        self.wanted = False
        self.to_send: list[Command] = []
        self.frames: list[Any] = []
        self.errors: list[Exception] = []
        self.opens: list[float] = []
        self.ticks = 0
        self.writes: list[int] = []  # How many commands each had.
        self.link = Link(self, connect, patience=PATIENCE, pulse=PULSE)

    def send(self, *commands: Command) -> None:
        self.wanted = True
        self.to_send += commands
        self.link.wake()

    async def answer(self, *words: str) -> Any:
        """Send a command and return what comes next."""
        expected = len(self.frames) + 1
        self.send(words)
        await until(lambda: len(self.frames) >= expected)
        return self.frames[-1]

    def busy(self) -> bool:
        return self.wanted

    def opened(self) -> None:
        self.opens.append(monotonic())

    def waiting(self) -> int:
        return len(self.to_send)

    def outgoing(self) -> Sequence[Command]:
        batch, self.to_send = self.to_send, []
        self.writes += [len(batch)] if batch else []
        return batch

    def received(self, frame: Any) -> None:
        self.frames.append(frame)

    def broken(self, error: Exception) -> None:
        self.errors.append(error)

    def tick(self, now: float) -> None:
        self.ticks += 1


@pytest.fixture
async def user(proxy: Proxy) -> AsyncIterator[Recorder]:
    user = Recorder(Connector.of(Redis.from_url(proxy.url), "linked", 5))
    yield user
    await user.link.aclose()


async def test_it_connects_when_its_user_has_something_to_say(proxy: Proxy, user: Recorder) -> None:
    assert not user.link.connected
    assert not proxy.connections
    assert await user.answer("PING") == b"PONG"
    assert user.link.connected
    assert len(user.opens) == 1


async def test_what_is_given_in_one_tick_leaves_in_one_write(user: Recorder) -> None:
    await user.answer("PING")
    user.send(("ECHO", "a"), ("ECHO", "b"))
    user.send(("ECHO", "c"))
    await until(lambda: len(user.frames) == 4)
    assert user.frames[1:] == [b"a", b"b", b"c"]
    assert user.writes == [1, 3]


async def test_an_error_reply_is_a_frame_like_any_other(user: Recorder) -> None:
    assert isinstance(await user.answer("NOSUCHCOMMAND"), ResponseError)
    assert await user.answer("PING") == b"PONG"
    assert user.errors == []


async def test_a_connection_that_dies_is_made_anew_while_its_user_is_busy(proxy: Proxy, user: Recorder) -> None:
    await user.answer("PING")
    proxy.reset_all()
    await until(lambda: len(user.opens) == 2)
    assert len(user.errors) == 1
    assert isinstance(user.errors[0], (RedisConnectionError, OSError))
    assert await user.answer("PING") == b"PONG"


async def test_a_connection_that_dies_is_not_made_anew_for_nobody(proxy: Proxy, user: Recorder) -> None:
    await user.answer("PING")
    user.wanted = False
    proxy.reset_all()
    await until(lambda: len(user.errors) == 1)
    await asyncio.sleep(5 * PULSE)
    assert not user.link.connected
    assert len(user.opens) == 1
    assert await user.answer("PING") == b"PONG"


async def test_what_is_given_in_the_turn_of_the_loss_goes_out_on_the_next_connection(user: Recorder) -> None:
    await user.answer("PING")
    wire = user.link._wire
    assert wire is not None
    noticed = wire.connection_lost

    def send_then(error: Exception | None) -> None:
        noticed(error)
        user.send(*[("ECHO", "x")] * 40)
        user.send(("ECHO", "y"))  # A full batch does not wait for the end of the turn.

    wire.connection_lost = send_then  # type: ignore[method-assign, assignment]
    wire._transport.abort()
    await until(lambda: len(user.frames) == 42)
    assert user.frames[-1] == b"y"


async def test_a_connection_that_is_closed_by_the_server_is_noticed(redis: Redis, user: Recorder) -> None:
    await user.answer("PING")
    await redis.client_kill_filter(_type="normal", skipme=True)
    await until(lambda: len(user.opens) == 2)


async def test_a_connection_that_was_given_up_is_made_anew(proxy: Proxy, user: Recorder) -> None:
    proxy.install(Rule(command(b"ECHO"), drop_reply(reset=False)))
    await user.answer("PING")
    user.send(("ECHO", "x"))
    await proxy.saw(command(b"ECHO"))
    user.link.fail()
    await until(lambda: len(user.opens) == 2)
    assert isinstance(user.errors[0], TimeoutError)
    assert await user.answer("PING") == b"PONG"
    await until(lambda: len(proxy.connections) == 1)


async def test_giving_up_no_connection_does_nothing(user: Recorder) -> None:
    user.link.fail()
    assert await user.answer("PING") == b"PONG"


async def test_a_connection_that_cannot_be_made_is_tried_again_less_and_less_often(
    proxy: Proxy, user: Recorder
) -> None:
    await proxy.refuse()
    times: list[float] = []
    user.broken = lambda error: times.append(monotonic())  # type: ignore[method-assign]
    user.send(("PING",))
    await until(lambda: len(times) == 9)
    pauses = [after - before for before, after in pairwise(times)]
    assert pauses[0] < 0.1
    assert pauses[-1] > PATIENCE * 0.4
    assert not user.link.connected
    await proxy.accept()
    await until(lambda: user.frames == [b"PONG"])


async def test_a_server_that_accepts_and_says_nothing_is_given_up(proxy: Proxy, user: Recorder) -> None:
    proxy.black_hole()
    user.send(("PING",))
    await until(lambda: len(user.errors) == 1)
    assert isinstance(user.errors[0], TimeoutError)
    assert user.opens == []
    proxy.restore()
    await until(lambda: user.frames == [b"PONG"])


async def test_a_refused_password_is_told(server: Server) -> None:
    user = Recorder(Connector.of(Redis.from_url(server.url, password="wrong"), None, 5))
    user.send(("PING",))
    await until(lambda: bool(user.errors))
    assert isinstance(user.errors[0], AuthenticationError)
    await user.link.aclose()


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
    await user.link.aclose()
    assert not user.link.connected
    await until_connected(redis, alone)
    user.send(("PING",))
    assert len(user.opens) == 1


async def test_closing_while_it_connects_ends_at_once(proxy: Proxy, user: Recorder) -> None:
    proxy.black_hole()
    user.send(("PING",))
    await until(lambda: len(proxy.connections) == 1)
    started = monotonic()
    await user.link.aclose()
    assert monotonic() - started < PATIENCE
    proxy.restore()


@pytest.mark.parametrize("settings", [{}, {"decode_responses": True, "protocol": 3, "socket_timeout": 0.1}], ids=str)
async def test_connections_do_not_decode_and_are_never_timed_out(server: Server, settings: dict[str, Any]) -> None:
    user = Recorder(Connector.of(Redis.from_url(server.url, health_check_interval=1, **settings), "linked", 5))
    assert await user.answer("ECHO", "x") == b"x"
    assert await user.answer("CLIENT", "GETNAME") == b"linked"
    assert isinstance(await user.answer("HELLO"), list)  # A map with RESP3.
    await asyncio.sleep(0.15)
    assert await user.answer("PING") == b"PONG"
    assert len(user.opens) == 1
    await user.link.aclose()


async def test_a_cancellation_ends_it_though_a_failure_takes_its_place(
    user: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> list[Command]:
        raise ConnectionResetError("while the last words are written")

    await user.answer("PING")
    monkeypatch.setattr(user, "outgoing", fail)
    task = user.link._task
    assert task is not None
    task.cancel()  # As asyncio.run does with every task that is left.
    await asyncio.wait_for(asyncio.wait([task]), 5)
    assert task.done()


async def test_a_choked_connection_that_is_given_up_sends_nothing_more(own: Server) -> None:
    user = Recorder(Connector.of(Redis.from_url(own.url), None, 5))
    await user.answer("PING")
    wire = user.link._wire
    assert wire is not None
    own.pause()
    try:
        while wire.writable:
            user.send(*[("ECHO", "x" * 10_000)] * 100)
            await asyncio.sleep(0)
        assert wire._transport.get_write_buffer_size() > 0
        user.wanted = False
        user.link.fail()
        await until(lambda: wire._lost)  # Without waiting for the server to read what is left: it reads no more.
    finally:
        own.resume()
        await user.link.aclose()
