"""Lost replies: a call that is disturbed on its way does what an undisturbed call does, and does nothing later."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from redis.asyncio import Redis

from aiolock._embedded_server import Server
from tests.chaos.operations import (
    COMMAND_TIMEOUT,
    OPERATIONS,
    REFUSED,
    Operation,
    Seen,
    change_nothing,
    clean_up,
    leftovers,
    observe,
    stage,
)
from tests.support.proxy import Action, Proxy, Rule, delay, drop_reply, hold, reset, script

# Each operation has clients of its own, and a slow machine must still connect them in time.
AT_ONCE = 4
LONG = 12.0

# How a user's client may be made; redis-py's own retries are 10 in the first two (in recent versions) and 0 else.
USERS: dict[str, Callable[[Proxy], Redis]] = {
    "host_and_port": lambda proxy: Redis(host="127.0.0.1", port=proxy.port),
    "decoding": lambda proxy: Redis(host="127.0.0.1", port=proxy.port, decode_responses=True, protocol=2),
    "from_url": lambda proxy: Redis.from_url(proxy.url, protocol=2),
    "resp3": lambda proxy: Redis.from_url(proxy.url, protocol=3),
    "resp3_decoding": lambda proxy: Redis.from_url(proxy.url, protocol=3, decode_responses=True),
}

# The undisturbed effect of each operation with a user's client; the first test that needs it fills it in.
UNDISTURBED: dict[tuple[Callable[[Proxy], Redis], str], Seen] = {}

# Disturbs the next call; returns the rule that holds its request back, if there is one.
Fault = Callable[[Proxy, Operation], Awaitable[Rule | None]]


def hit(action: Action, times: int = 1) -> Fault:
    async def install(proxy: Proxy, operation: Operation) -> None:
        proxy.install(Rule(script(operation.script), action, times))

    return install


def hold_back(action: Action) -> Fault:
    async def install(proxy: Proxy, operation: Operation) -> Rule:
        return proxy.install(Rule(script(operation.script), action))

    return install


def black_hole(moment: float) -> Fault:
    async def begin(proxy: Proxy, operation: Operation) -> None:
        proxy.black_hole()
        asyncio.get_running_loop().call_later(moment, proxy.restore)

    return begin


async def half_open(proxy: Proxy, operation: Operation) -> None:
    assert proxy.half_open(lambda connection: not connection.subscriber)


async def refuse(proxy: Proxy, operation: Operation) -> None:
    await proxy.cut_off()
    asyncio.get_running_loop().call_later(0.2, lambda: asyncio.ensure_future(proxy.accept()))


QUICK: dict[str, Fault] = {
    "reply_dropped": hit(drop_reply()),
    "reply_dropped_thrice": hit(drop_reply(), 3),
    "held_back": hold_back(hold()),
    "delayed": hit(delay(0.1)),
    "reset_before": hit(reset()),
    "refused": refuse,
}
# The client notices these faults only by the time that passes: these tests take seconds.
SILENT: dict[str, Fault] = {
    "reply_swallowed": hit(drop_reply(reset=False)),
    "held_back_in_silence": hold_back(hold(reset=False)),
    "black_hole": black_hole(COMMAND_TIMEOUT / 6),
    "black_hole_until_sent_again": black_hole(COMMAND_TIMEOUT / 2),
    "half_open": half_open,
}
# Each fault is tried once, and each kind of client is tried once.
CASES = [
    *(pytest.param(USERS["host_and_port"], fault, LONG, id=name) for name, fault in QUICK.items()),
    *(
        pytest.param(USERS["host_and_port"], fault, COMMAND_TIMEOUT, id=name, marks=pytest.mark.slow)
        for name, fault in SILENT.items()
    ),
    *(pytest.param(make, QUICK["reply_dropped"], LONG, id=user) for user, make in USERS.items()),
]


@pytest.mark.parametrize(("user", "fault", "timeout"), CASES)
async def test_a_disturbed_call_has_the_effect_of_an_undisturbed_one(
    server: Server, redis: Redis, user: Callable[[Proxy], Redis], fault: Fault, timeout: float
) -> None:
    async def perform(name: str, operation: Operation, fault: Fault | None) -> Seen:
        async with Proxy(server.host, server.port) as proxy:
            client = user(proxy)
            interval = operation.renew_interval
            async with stage(redis, client, name, renew_interval=interval, command_timeout=timeout) as on:
                await operation.prepare(on)
                # This connects the client, also if nothing was prepared.
                await on.client.lock("another").locked()
                await on.answered()
                so_far = len(proxy.requests)
                rule = await fault(proxy, operation) if fault else None
                seen = await observe(on, operation)
                assert any(script(operation.script)(request) for request in proxy.requests[so_far:])
                if rule is not None:
                    await change_nothing(on, proxy, rule)
                await clean_up(on)
            await client.aclose()
        return seen

    room = asyncio.Semaphore(AT_ONCE)

    async def compare(name: str, operation: Operation) -> None:
        try:
            async with room:
                if (user, name) not in UNDISTURBED:
                    UNDISTURBED[user, name] = await perform(name, operation, None)
                assert await perform(f"{name}, disturbed", operation, fault) == UNDISTURBED[user, name]
        except BaseException as error:
            error.add_note(f"operation: {name}")
            raise

    async with asyncio.TaskGroup() as group:
        for name, operation in (OPERATIONS | REFUSED).items():
            group.create_task(compare(name, operation))
    assert await leftovers(redis) == set()
