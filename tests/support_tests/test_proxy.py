import asyncio
import contextlib
import hashlib
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from redis import ConnectionError as RedisConnectionError
from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from aiolock._server import Server
from tests.support.observe import connected, pubsub_channels, until
from tests.support.proxy import (
    ALWAYS,
    Connection,
    Proxy,
    Rule,
    anything,
    command,
    delay,
    drop_reply,
    hold,
    reset,
    script,
    withhold_reply,
)
from tests.support.resp import Frames

SILENCE = 0.05  # seconds without an answer after which we believe that none comes
LATE = 0.5  # seconds of a delay during which we can look at the server, also on a busy machine


@dataclass(frozen=True)
class Adding:
    """A script in the package's shape."""

    source: str = "return redis.call('INCR', KEYS[1])"

    @property
    def sha(self) -> str:
        return hashlib.sha1(self.source.encode()).hexdigest()


@pytest.fixture
async def proxy(server: Server, redis: Redis) -> AsyncIterator[Proxy]:
    """A proxy before the shared server, which `redis` has emptied."""
    async with Proxy(server.host, server.port) as running:
        yield running


@pytest.fixture(params=[2, 3], ids=["resp2", "resp3"])
async def client(request: pytest.FixtureRequest, proxy: Proxy) -> AsyncIterator[Redis]:
    """A client behind the proxy that never sends again by itself."""
    client = Redis.from_url(
        proxy.url, protocol=request.param, retry=Retry(NoBackoff(), 0), socket_timeout=5, decode_responses=True
    )
    yield client
    await client.aclose()


class Wire:
    """A connection in our own hands: bytes out, frames in."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer, self.frames, self.ready = reader, writer, Frames(), list[bytes]()

    def send(self, *requests: str) -> None:
        self.writer.write(b"".join(encoded(request) for request in requests))

    async def receive(self) -> bytes:
        while not self.ready:
            self.ready += self.frames.feed(await self.reader.readexactly(1))
        return self.ready.pop(0)

    async def ask(self, request: str) -> bytes:
        self.send(request)
        return await self.receive()

    async def is_silent(self) -> bool:
        try:
            await asyncio.wait_for(self.reader.read(1), SILENCE)
        except TimeoutError:
            return True
        return False

    async def close(self) -> None:
        self.writer.transport.abort()
        with contextlib.suppress(ConnectionResetError):
            await self.writer.wait_closed()


def encoded(request: str) -> bytes:
    words = [word.encode() for word in request.split()]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


@pytest.fixture
async def wire(proxy: Proxy) -> AsyncIterator[Wire]:
    wire = Wire(*await asyncio.open_connection("127.0.0.1", proxy.port))
    yield wire
    await wire.close()


async def count(redis: Redis, key: str = "n") -> int:
    return int(await redis.get(key) or 0)


async def test_carries_everything_as_it_is(client: Redis, redis: Redis) -> None:
    big = "x" * 300_000
    assert await client.set("big", big)
    assert await client.get("big") == big
    assert await client.zadd("z", {"a": 1.5}) == 1
    async with client.pipeline(transaction=False) as pipe:
        for _ in range(1000):
            pipe.execute_command("INCR", "n")
        assert await pipe.execute() == list(range(1, 1001))
    assert await count(redis) == 1000


async def test_carries_transactions_and_scripts(client: Redis) -> None:
    async with client.pipeline(transaction=True) as pipe:
        pipe.execute_command("INCR", "n")
        pipe.execute_command("GET", "nothing")
        assert await pipe.execute() == [1, None]
    assert await client.eval("return {1, {'a', false}}", 0) == [1, ["a", None]]


async def test_logs_every_request(proxy: Proxy, wire: Wire) -> None:
    before = time.monotonic()
    await wire.ask("SET key value")
    await wire.ask("get key")
    assert [request.args for request in proxy.requests] == [(b"SET", b"key", b"value"), (b"get", b"key")]
    assert [request.name for request in proxy.requests] == [b"SET", b"GET"]
    assert len({request.connection for request in proxy.requests}) == 1
    assert before <= proxy.requests[0].at <= proxy.requests[1].at <= time.monotonic()


async def test_saw_waits_for_requests_and_counts_those_that_came_before(proxy: Proxy, wire: Wire) -> None:
    await wire.ask("INCRBY n 1")
    seeing = asyncio.create_task(proxy.saw(command(b"INCRBY"), count=2))
    await proxy.saw(command(b"INCRBY"))
    assert not seeing.done()
    await wire.ask("INCRBY n 1")
    await seeing


async def test_saw_fails_with_what_came_instead(proxy: Proxy, wire: Wire) -> None:
    await wire.ask("GET key")
    with pytest.raises(AssertionError, match=r"1 of 1 requests did not come within 0.01 s.*GET"):
        await proxy.saw(command(b"SET"), within=0.01)


async def test_pub_sub_passes(client: Redis, redis: Redis) -> None:
    async with client.pubsub() as pubsub:
        await pubsub.subscribe("a", "b")
        await pubsub.psubscribe("c*")
        assert await next_types(pubsub, 3) == ["subscribe", "subscribe", "psubscribe"]
        await redis.publish("a", "1")
        await redis.publish("cc", "2")
        assert await next_types(pubsub, 2) == ["message", "pmessage"]
        await pubsub.unsubscribe("a")
        assert await next_types(pubsub, 1) == ["unsubscribe"]


async def next_types(pubsub: PubSub, count: int) -> list[str | None]:
    messages = [await pubsub.get_message(timeout=5) for _ in range(count)]
    return [message and message["type"] for message in messages]


# Rules


async def test_drop_reply_the_server_executed_it_and_the_client_saw_a_reset(
    proxy: Proxy, client: Redis, redis: Redis
) -> None:
    lost = proxy.install(Rule(command(b"INCRBY"), drop_reply()))
    with pytest.raises(RedisConnectionError):
        await client.incr("n")
    await lost.caught()
    assert await count(redis) == 1
    assert await client.incr("n") == 2


async def test_drop_reply_is_a_real_reset(proxy: Proxy, wire: Wire) -> None:
    proxy.install(Rule(command(b"INCRBY"), drop_reply()))
    wire.send("INCRBY n 1")
    with pytest.raises(ConnectionResetError):
        await wire.receive()


async def test_drop_reply_delivers_the_replies_before_it(proxy: Proxy, wire: Wire, redis: Redis) -> None:
    proxy.install(Rule(command(b"INCRBY"), drop_reply()))
    wire.send("SET a 1", "INCRBY n 1", "SET b 1")
    assert await wire.receive() == b"+OK\r\n"
    with pytest.raises(ConnectionResetError):
        await wire.receive()
    assert await redis.mget("a", "n", "b") == [b"1", b"1", b"1"]


async def test_drop_reply_without_reset_leaves_a_silent_connection_that_still_executes(
    proxy: Proxy, wire: Wire, redis: Redis
) -> None:
    lost = proxy.install(Rule(command(b"INCRBY"), drop_reply(reset=False)))
    wire.send("INCRBY n 1")
    await lost.caught()
    wire.send("INCRBY n 1")
    assert await wire.is_silent()
    assert await count(redis) == 2


async def test_a_rule_applies_as_often_as_it_says(proxy: Proxy, client: Redis, redis: Redis) -> None:
    rule = proxy.install(Rule(command(b"INCRBY"), drop_reply(), times=2))
    for _ in range(2):
        with pytest.raises(RedisConnectionError):
            await client.incr("n")
    assert await client.incr("n") == 3
    assert [request.args for request in rule.requests] == [(b"INCRBY", b"n", b"1")] * 2


async def test_rules_apply_in_their_order_until_cleared(proxy: Proxy, wire: Wire) -> None:
    first = proxy.install(Rule(command(b"INCRBY"), delay(0)))
    second = proxy.install(Rule(anything, delay(0), times=ALWAYS))
    for _ in range(3):
        await wire.ask("INCRBY n 1")
    proxy.clear_rules()
    await wire.ask("INCRBY n 1")
    assert (len(first.requests), len(second.requests)) == (1, 2)


async def test_hold_is_executed_only_upon_delivery(proxy: Proxy, client: Redis, redis: Redis) -> None:
    late = proxy.install(Rule(command(b"INCRBY"), hold()))
    with pytest.raises(RedisConnectionError):
        await client.incr("n")
    await late.caught()
    assert await count(redis) == 0
    assert await client.incr("n") == 1
    await client.aclose()
    assert await late.deliver() == b":2\r\n"
    assert await count(redis) == 2


async def test_hold_executes_what_came_before_and_nothing_after(proxy: Proxy, wire: Wire, redis: Redis) -> None:
    proxy.install(Rule(command(b"INCRBY"), hold()))
    wire.send("SET a 1", "INCRBY n 1", "SET b 1")
    assert await wire.receive() == b"+OK\r\n"
    with pytest.raises(ConnectionResetError):
        await wire.receive()
    assert await redis.mget("a", "n", "b") == [b"1", None, None]


async def test_hold_without_reset_leaves_a_silent_connection(proxy: Proxy, wire: Wire, redis: Redis) -> None:
    late = proxy.install(Rule(command(b"INCRBY"), hold(reset=False)))
    wire.send("INCRBY n 1", "INCRBY n 1")
    assert await wire.is_silent()
    assert await count(redis) == 0
    assert await late.deliver() == b":1\r\n"
    assert await wire.is_silent()


async def test_held_requests_are_delivered_in_their_order(proxy: Proxy, client: Redis) -> None:
    late = proxy.install(Rule(command(b"SET"), hold(), times=2))
    for value in "ab":
        with pytest.raises(RedisConnectionError):
            await client.set("key", value)
    await late.caught(2)
    await late.deliver()
    assert await client.get("key") == "a"
    await late.deliver()
    assert await client.get("key") == "b"


async def test_deliver_to_a_server_that_is_gone_fails(redis: Redis) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.close()

    other = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with other, Proxy("127.0.0.1", other.sockets[0].getsockname()[1]) as proxy:
        late = proxy.install(Rule(anything, hold()))
        wire = Wire(*await asyncio.open_connection("127.0.0.1", proxy.port))
        wire.send("PING")
        await late.caught()
        with pytest.raises(ConnectionResetError):
            await late.deliver()
        await wire.close()


async def test_reset_before_the_server_hears_of_it(proxy: Proxy, client: Redis, redis: Redis) -> None:
    broken = proxy.install(Rule(command(b"INCRBY"), reset()))
    with pytest.raises(RedisConnectionError):
        await client.incr("n")
    await broken.caught()
    assert await count(redis) == 0


async def test_delay_holds_up_the_request_and_those_behind_it(proxy: Proxy, wire: Wire, redis: Redis) -> None:
    proxy.install(Rule(command(b"INCRBY"), delay(LATE)))
    start = time.monotonic()
    wire.send("SET a 1", "INCRBY n 1", "SET b 1")
    assert await wire.receive() == b"+OK\r\n"
    assert await redis.mget("a", "n", "b") == [b"1", None, None]
    assert await wire.receive() == b":1\r\n"
    assert time.monotonic() - start >= LATE
    assert await wire.receive() == b"+OK\r\n"


async def test_a_delayed_request_arrives_although_its_client_has_left(proxy: Proxy, wire: Wire, redis: Redis) -> None:
    late = proxy.install(Rule(command(b"INCRBY"), delay(LATE)))
    wire.send("INCRBY n 1")
    await late.caught()
    await wire.close()
    assert await count(redis) == 0
    await until(lambda: is_one(redis))


async def is_one(redis: Redis) -> bool:
    return await count(redis) == 1


async def test_withhold_reply_until_let_go(proxy: Proxy, wire: Wire, redis: Redis) -> None:
    kept = proxy.install(Rule(command(b"INCRBY"), withhold_reply()))
    wire.send("SET a 1", "INCRBY n 1", "SET b 1")
    assert await wire.receive() == b"+OK\r\n"
    await kept.caught()
    assert await count(redis) == 1
    assert await wire.is_silent()
    kept.let_go()
    assert await wire.receive() == b":1\r\n"
    assert await wire.receive() == b"+OK\r\n"


async def test_caught_also_when_the_client_has_left_meanwhile(proxy: Proxy, wire: Wire, redis: Redis) -> None:
    kept = proxy.install(Rule(command(b"INCRBY"), withhold_reply()))
    wire.send("INCRBY n 1")
    await wire.writer.drain()
    await wire.close()
    await kept.caught()
    assert await count(redis) == 1
    kept.let_go()
    await until(lambda: not proxy.connections)


async def test_reply_faults_hit_subscriptions_too(proxy: Proxy, wire: Wire, redis: Redis) -> None:
    kept = proxy.install(Rule(command(b"SUBSCRIBE"), withhold_reply()))
    wire.send("SUBSCRIBE a b")
    await kept.caught()
    assert await pubsub_channels(redis) == {"a", "b"}
    assert await wire.is_silent()
    kept.let_go()
    assert b"subscribe" in await wire.receive()
    assert b"subscribe" in await wire.receive()


async def test_a_refused_subscription_is_one_frame(proxy: Proxy, wire: Wire, redis: Redis) -> None:
    await redis.acl_setuser("poor", enabled=True, nopass=True, commands=["+@all"], channels=["x"], reset=True)
    kept = proxy.install(Rule(command(b"PING"), withhold_reply()))
    await wire.ask("AUTH poor none")
    assert b"NOPERM" in await wire.ask("SUBSCRIBE a b")
    wire.send("PING")
    await kept.caught()
    await redis.acl_deluser("poor")


async def test_script_matches_calls_by_sha_and_by_source(proxy: Proxy, client: Redis, redis: Redis) -> None:
    adding, other = Adding(), Adding("return 7")
    rule = proxy.install(Rule(script(adding), delay(0), times=ALWAYS))
    await client.script_load(adding.source)
    await client.evalsha(adding.sha, 1, "n")
    await client.eval(adding.source, 1, "n")
    await client.eval(other.source, 0)
    await client.evalsha(other.sha, 0)
    assert [request.name for request in rule.requests] == [b"EVALSHA", b"EVAL"]
    assert await count(redis) == 2


async def test_script_matches_the_packages_own() -> None:
    from aiolock import _scripts

    assert script(_scripts.ACQUIRE) is not None


def test_command_matches_the_first_words_in_any_case() -> None:
    assert matches("subscribe a", b"SUBSCRIBE")
    assert matches("Client SetInfo LIB-NAME x", b"client", b"setinfo")
    assert not matches("CLIENT ID", b"CLIENT", b"SETINFO")
    assert not matches("CLIENT", b"CLIENT", b"SETINFO")


def matches(request: str, *words: bytes) -> bool:
    from tests.support.faults import Request

    return command(*words)(Request(1, tuple(request.encode().split()), 0.0, b""))


# Switches


async def test_black_hole_carries_nothing_until_restored(proxy: Proxy, wire: Wire, redis: Redis) -> None:
    await wire.ask("PING")
    proxy.black_hole()
    wire.send("INCRBY n 1")
    assert await wire.is_silent()
    assert await count(redis) == 0
    proxy.restore()
    assert await wire.receive() == b":1\r\n"


async def test_black_hole_swallows_replies_too(proxy: Proxy, wire: Wire, redis: Redis) -> None:
    kept = proxy.install(Rule(command(b"INCRBY"), withhold_reply()))
    wire.send("INCRBY n 1")
    await kept.caught()
    proxy.black_hole()
    kept.let_go()
    assert await wire.is_silent()
    proxy.restore()
    assert await wire.receive() == b":1\r\n"


async def test_black_hole_accepts_new_connections(proxy: Proxy, redis: Redis) -> None:
    proxy.black_hole()
    before = await connected(redis)
    wire = Wire(*await asyncio.open_connection("127.0.0.1", proxy.port))
    wire.send("INCRBY n 1")
    assert await wire.is_silent()
    assert await connected(redis) == before
    proxy.restore()
    assert await wire.receive() == b":1\r\n"
    await wire.close()


async def test_black_hole_delivers_late_what_a_client_left_behind(proxy: Proxy, wire: Wire, redis: Redis) -> None:
    await wire.ask("PING")
    proxy.black_hole()
    wire.send("INCRBY n 1")
    await proxy.saw(command(b"INCRBY"))
    await wire.close()
    proxy.restore()
    await until(lambda: is_one(redis))


async def test_half_open_cuts_the_server_side_only(proxy: Proxy, wire: Wire, redis: Redis) -> None:
    await wire.ask("SUBSCRIBE a")
    other = Wire(*await asyncio.open_connection("127.0.0.1", proxy.port))
    await other.ask("PING")
    assert proxy.half_open(lambda connection: connection.subscriber) == 1
    await until(lambda: nobody_subscribed(redis))
    wire.send("PING")
    await proxy.saw(command(b"PING"), count=2)
    assert await wire.is_silent()
    assert await other.ask("INCRBY n 1") == b":1\r\n"
    await other.close()


async def nobody_subscribed(redis: Redis) -> bool:
    return not await pubsub_channels(redis)


async def test_half_open_uses_up_no_rule(proxy: Proxy, wire: Wire) -> None:
    await wire.ask("GET n")
    proxy.half_open(lambda connection: True)
    rule = proxy.install(Rule(command(b"INCRBY"), delay(0)))
    wire.send("INCRBY n 1")
    await proxy.saw(command(b"INCRBY"))
    other = Wire(*await asyncio.open_connection("127.0.0.1", proxy.port))
    await other.ask("INCRBY n 1")
    await rule.caught()
    await other.close()


async def test_connections_can_be_told_apart(proxy: Proxy, wire: Wire) -> None:
    await wire.ask("CLIENT ID")

    def is_ours(connection: Connection) -> bool:
        return [request.name for request in connection.requests] == [b"CLIENT"]

    assert len(proxy.connections) == 1
    assert proxy.half_open(is_ours) == 1


async def test_reset_all_and_the_next_connection_works(proxy: Proxy, client: Redis, wire: Wire) -> None:
    await client.ping()
    await wire.ask("PING")
    proxy.reset_all()
    with pytest.raises(ConnectionResetError):
        await wire.receive()
    # redis-py may connect again by itself, or lets through what writing to a closed transport raises: RuntimeError on
    # uvloop, and AttributeError on asyncio as of Python 3.12 (gh-136234).
    with suppress(RedisConnectionError, RuntimeError, AttributeError):
        await client.ping()
    assert await client.ping()


async def test_refuse_and_accept(proxy: Proxy, wire: Wire) -> None:
    await wire.ask("PING")
    port = proxy.port
    await proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)
    assert await wire.ask("PING") == b"+PONG\r\n"
    await proxy.accept()
    assert proxy.port == port
    await Wire(*await asyncio.open_connection("127.0.0.1", port)).close()


async def test_swallow_messages_and_nothing_else(proxy: Proxy, client: Redis, redis: Redis) -> None:
    async with client.pubsub() as pubsub:
        proxy.swallow_messages()
        await pubsub.subscribe("a")
        assert await next_types(pubsub, 1) == ["subscribe"]
        assert await redis.publish("a", "lost") == 1
        await pubsub.subscribe("b")
        assert await next_types(pubsub, 1) == ["subscribe"]
        proxy.swallow_messages(False)
        await redis.publish("a", "kept")
        message = await pubsub.get_message(timeout=5)
        assert message is not None
        assert message["data"] == "kept"


async def test_a_server_that_is_down_looks_like_a_reset(unused_tcp_port: int) -> None:
    async with Proxy("127.0.0.1", unused_tcp_port) as proxy:
        wire = Wire(*await asyncio.open_connection("127.0.0.1", proxy.port))
        with pytest.raises(ConnectionResetError):
            await wire.receive()
        await wire.close()


async def test_a_server_that_goes_away_takes_the_connection_along(server: Server) -> None:
    with Server(server._executable) as own:
        async with Proxy(own.host, own.port) as proxy:
            wire = Wire(*await asyncio.open_connection("127.0.0.1", proxy.port))
            await wire.ask("PING")
            own.kill()
            with pytest.raises(asyncio.IncompleteReadError):
                await wire.receive()
            await wire.close()


async def test_a_client_that_leaves_takes_its_subscription_along(proxy: Proxy, wire: Wire, redis: Redis) -> None:
    await wire.ask("SUBSCRIBE a")
    await wire.close()
    await until(lambda: nobody_subscribed(redis))
    await until(lambda: not proxy.connections)


async def test_leaves_no_connection_behind(server: Server, redis: Redis) -> None:
    before = await connected(redis)
    async with Proxy(server.host, server.port) as proxy:
        wires = [Wire(*await asyncio.open_connection("127.0.0.1", proxy.port)) for _ in range(20)]
        for wire in wires:
            await wire.ask("SUBSCRIBE a")
        assert await connected(redis) == before + 20
    await until(lambda: has_connected(redis, before))
    for wire in wires:
        await wire.close()


async def has_connected(redis: Redis, wanted: int) -> bool:
    return await connected(redis) == wanted


@pytest.mark.parametrize("stuck", ["black hole", "withheld", "delayed"])
async def test_ends_at_once_whatever_is_stuck(server: Server, stuck: str) -> None:
    async with Proxy(server.host, server.port) as proxy:
        wire = Wire(*await asyncio.open_connection("127.0.0.1", proxy.port))
        await wire.ask("PING")
        if stuck == "black hole":
            proxy.black_hole()
        rule = proxy.install(Rule(command(b"INCRBY"), delay(60) if stuck == "delayed" else withhold_reply()))
        wire.send("INCRBY n 1")
        await (proxy.saw(command(b"INCRBY")) if stuck == "black hole" else rule.caught())
    await wire.close()


async def test_an_error_of_its_own_fails_the_test(server: Server) -> None:
    with pytest.raises(ExceptionGroup, match="the proxy itself failed"):
        await use_a_broken_rule(server)


async def use_a_broken_rule(server: Server) -> None:
    def broken(_: Any) -> bool:
        raise LookupError("a bug")

    async with Proxy(server.host, server.port) as proxy:
        proxy.install(Rule(broken, delay(0)))
        wire = Wire(*await asyncio.open_connection("127.0.0.1", proxy.port))
        wire.send("PING")
        assert not await wire.reader.read()
        await wire.close()
