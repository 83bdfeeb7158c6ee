"""A rule causes its fault for the requests that it matches, as often as it says, and for no others."""

import asyncio
import hashlib
import time
from dataclasses import dataclass

import pytest
from redis import ConnectionError as RedisConnectionError
from redis.asyncio import Redis

from tests.support.observe import pubsub_channels, until
from tests.support.proxy import (
    ALWAYS,
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
from tests.support_tests.wire import Wire, count, is_one

# Seconds of a delay in which a test can look at the server, also on a busy machine.
LATE = 0.5


@dataclass(frozen=True)
class Adding:
    """A script in the package's shape."""

    source: str = "return redis.call('INCR', KEYS[1])"

    @property
    def sha(self) -> str:
        return hashlib.sha1(self.source.encode()).hexdigest()


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


async def test_hold_executes_the_requests_before_it_and_none_after(proxy: Proxy, wire: Wire, redis: Redis) -> None:
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
