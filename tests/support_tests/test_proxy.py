"""The proxy as a whole: it carries everything as it is, until one of its switches says otherwise."""

import asyncio
import socket
import time
from contextlib import suppress
from typing import Any

import pytest
from redis import ConnectionError as RedisConnectionError
from redis.asyncio import Redis
from redis.asyncio.client import PubSub

from aiolock._embedded_server import Server
from tests.support.observe import connected, pubsub_channels, until, until_connected
from tests.support.proxy import (
    Connection,
    Proxy,
    Rule,
    command,
    delay,
    withhold_reply,
)
from tests.support_tests.wire import Wire, count, is_one


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


async def test_saw_fails_with_the_requests_that_came_instead(proxy: Proxy, wire: Wire) -> None:
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


async def test_black_hole_delivers_late_the_requests_of_a_client_that_left(
    proxy: Proxy, wire: Wire, redis: Redis
) -> None:
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


async def test_cut_off_until_healed(proxy: Proxy, wire: Wire) -> None:
    await wire.ask("PING")
    await proxy.cut_off()
    with pytest.raises(ConnectionResetError):
        await wire.receive()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", proxy.port)
    await proxy.heal()
    again = Wire(*await asyncio.open_connection("127.0.0.1", proxy.port))
    proxy.black_hole()
    again.send("PING")
    await proxy.heal()
    assert await again.receive() == b"+PONG\r\n"
    await again.close()


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
    await until_connected(redis, before)
    for wire in wires:
        await wire.close()


@pytest.mark.parametrize("stuck", ["black hole", "withheld", "delayed"])
async def test_the_proxy_ends_at_once_with_anything_stuck(server: Server, stuck: str) -> None:
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


async def test_nobody_gets_its_port_while_it_refuses(proxy: Proxy) -> None:
    await proxy.refuse()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", proxy.port))
    await proxy.accept()
