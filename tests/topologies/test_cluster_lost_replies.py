"""Lost replies in a cluster, also while a slot moves: a call does what an undisturbed call does, and nothing later."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import pytest
from redis.asyncio import RedisCluster
from redis.crc import key_slot

from aiolock import LockClient, LockConfig
from aiolock._config import Timing
from aiolock._embedded_server import Server
from aiolock._scripts import RENEW
from tests.chaos.operations import (
    OPERATIONS,
    REFUSED,
    Operation,
    Seen,
    Stage,
    change_nothing,
    clean_up,
    observe,
    stage,
)
from tests.support.observe import until
from tests.support.proxy import (
    ALWAYS,
    Action,
    Proxy,
    Request,
    Rule,
    delay,
    drop_reply,
    hold,
    refuse,
    script,
    withhold_reply,
)
from tests.support.resharding import begin_to_move, end_move, move, move_keys
from tests.support.topologies import ClusterOf

# Each operation has clients of its own, and a slow machine must still connect them in time.
AT_ONCE = 4
LONG = 30.0


@dataclass
class Scene:
    """One call of a client that reaches every server through a proxy."""

    cluster: ClusterOf
    proxies: dict[int, Proxy]
    name: str
    operation: Operation

    @property
    def owner(self) -> Server:
        return self.cluster.owner_of(self.name)

    def proxy(self, server: Server) -> Proxy:
        return self.proxies[server.port]

    def hit(self, server: Server, action: Action, times: int = 1) -> Rule:
        """Apply the action to the call when it is on its way to the server."""
        return self.proxy(server).install(Rule(self._is_the_call, action, times))

    def came_with_asking(self, server: Server, request: Request) -> bool:
        """Whether the command before it on its connection was ASKING."""
        same = [each for each in self.proxy(server).requests if each.connection == request.connection]
        return same[same.index(request) - 1].name == b"ASKING"

    def _is_the_call(self, request: Request) -> bool:
        return script(self.operation.script)(request) and request.args[3] == self.name.encode()


@asynccontextmanager
async def proxied(cluster: ClusterOf) -> AsyncIterator[tuple[RedisCluster, dict[int, Proxy]]]:
    """A user's client whose connections go through proxies, and these proxies by the ports of the servers."""
    async with AsyncExitStack() as stack:
        proxies = {
            server.port: await stack.enter_async_context(Proxy(server.host, server.port)) for server in cluster.servers
        }

        def remapped(address: tuple[str, int]) -> tuple[str, int]:
            return (address[0], proxies[address[1]].port if address[1] in proxies else address[1])

        first = cluster.primaries[0]
        user = RedisCluster(host=first.host, port=proxies[first.port].port, address_remap=remapped)
        stack.push_async_callback(user.aclose)
        yield user, proxies


# Prepares the fault of a call; the returned coroutine runs beside the call.
Fault = Callable[[Scene], Coroutine[None, None, object]]


def dropped(times: int) -> Fault:
    def fault(scene: Scene) -> Coroutine[None, None, object]:
        return scene.hit(scene.owner, drop_reply(), times).caught(times)

    return fault


def moved_before(scene: Scene) -> Coroutine[None, None, object]:
    """The reply of the old owner of the slot is lost, and that of the new owner, too."""
    source = scene.owner
    target = move(scene.cluster, scene.name)
    unheard, lost = scene.hit(source, drop_reply()), scene.hit(target, drop_reply())

    async def both() -> None:
        await unheard.caught(within=15)
        await lost.caught(within=15)

    return both()


def moved_meanwhile(scene: Scene) -> Coroutine[None, None, object]:
    """The old owner has executed the call, and the client asks the new owner again."""
    source = scene.owner
    done = scene.hit(source, withhold_reply())

    async def go_on() -> None:
        await done.caught(within=15)
        move(scene.cluster, scene.name)
        scene.proxy(source).reset_all()

    return go_on()


def asked(scene: Scene) -> Coroutine[None, None, object]:
    """The slot is moving, its keys have moved, and the reply of the server that has the keys is lost."""
    source, target = begin_to_move(scene.cluster, scene.name)
    move_keys(scene.cluster, scene.name, source, target)
    lost = scene.hit(target, drop_reply())

    async def go_on() -> None:
        await lost.caught(within=15)
        assert scene.came_with_asking(target, lost.requests[0])
        end_move(scene.cluster, scene.name, target)

    return go_on()


def asked_meanwhile(scene: Scene) -> Coroutine[None, None, object]:
    """The old owner has executed the call, and redirects the second copy to the server that has the keys now."""
    done = scene.hit(scene.owner, withhold_reply())

    async def go_on() -> None:
        await done.caught(within=15)
        source, target = begin_to_move(scene.cluster, scene.name)
        move_keys(scene.cluster, scene.name, source, target)
        again = scene.hit(target, drop_reply())
        scene.proxy(source).reset_all()
        await again.caught(within=15)
        assert scene.came_with_asking(target, again.requests[0])
        end_move(scene.cluster, scene.name, target)

    return go_on()


FAULTS: dict[str, Fault] = {
    "dropped": dropped(1),
    "dropped_thrice": dropped(3),
    "moved_before": moved_before,
    "moved_meanwhile": moved_meanwhile,
    "asked": asked,
    "asked_meanwhile": asked_meanwhile,
}


@asynccontextmanager
async def scene_of(
    calm: ClusterOf, cluster: RedisCluster, name: str, operation: Operation
) -> AsyncIterator[tuple[Stage, Scene]]:
    """Connect and prepare everything, so that the call comes next."""
    interval = operation.renew_interval
    async with (
        proxied(calm) as (user, proxies),
        stage(cluster, user, name, renew_interval=interval, command_timeout=LONG) as on,
    ):
        await operation.prepare(on)
        await on.client.lock(f"{{{name}}} too").locked()
        await on.answered()
        yield on, Scene(calm, proxies, name, operation)
        await clean_up(on)


async def perform(calm: ClusterOf, cluster: RedisCluster, name: str, operation: Operation, fault: Fault | None) -> Seen:
    async with scene_of(calm, cluster, name, operation) as (on, scene):
        beside = None if fault is None else asyncio.create_task(fault(scene))
        seen = await observe(on, operation)
        if beside is not None:
            await beside
    return seen


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
async def test_a_disturbed_call_has_the_effect_of_an_undisturbed_one(
    calm: ClusterOf, cluster: RedisCluster, fault: Fault
) -> None:
    room = asyncio.Semaphore(AT_ONCE)

    async def compare(name: str, operation: Operation) -> None:
        try:
            async with room:
                undisturbed = await perform(calm, cluster, name, operation, None)
                disturbed = await perform(calm, cluster, f"{name}, disturbed", operation, fault)
            assert disturbed == undisturbed, disturbed.raised or undisturbed.raised
        except BaseException as error:
            error.add_note(f"operation: {name}")
            raise

    async with asyncio.TaskGroup() as group:
        for name, operation in (OPERATIONS | REFUSED).items():
            group.create_task(compare(name, operation))


@pytest.mark.parametrize("name", OPERATIONS)
async def test_a_request_that_arrives_when_the_slot_has_moved_and_come_back_does_nothing(
    calm: ClusterOf, cluster: RedisCluster, name: str
) -> None:
    """The request was still on its way when the client sent the call again, and the server of that time answered."""
    operation = OPERATIONS[name]
    async with scene_of(calm, cluster, name, operation) as (on, scene):
        source = scene.owner
        late = scene.hit(source, hold())

        async def move_away() -> None:
            await late.caught(within=15)
            move(calm, name)

        moving = asyncio.create_task(move_away())
        await operation.run(on)
        await moving
        move(calm, name, source)
        # The client learns where the slot is now.
        await on.lock.locked()
        await on.answered()
        for proxy in scene.proxies.values():
            proxy.black_hole()
        await change_nothing(on, scene.proxy(source), late)
        for proxy in scene.proxies.values():
            proxy.restore()


async def test_a_renewal_that_lost_replies_of_two_servers_is_sent_again(calm: ClusterOf, cluster: RedisCluster) -> None:
    """Both of its copies fail once at the server that has the lock, and once at the one that gets it."""
    renewal = Operation(RENEW, OPERATIONS["nested acquire"].prepare, OPERATIONS["renew"].run)
    async with scene_of(calm, cluster, "orders", renewal) as (on, scene):
        source = scene.owner
        unheard = scene.hit(source, withhold_reply(), ALWAYS)
        task = asyncio.ensure_future(renewal.run(on))
        await unheard.caught(2, within=15)
        source, target = begin_to_move(calm, "orders")
        move_keys(calm, "orders", source, target)
        scene.hit(target, withhold_reply())
        scene.proxy(source).clear_rules()
        scene.proxy(source).reset_all()
        await scene.proxy(target).saw(script(RENEW), 2, within=15)
        scene.proxy(target).reset_all()
        await task
        end_move(calm, "orders", target)


async def test_a_renewal_that_two_servers_send_on_comes_back_as_one(calm: ClusterOf, cluster: RedisCluster) -> None:
    """The copy of a renewal rests on a server that does not own the slot, when the client hears who owns it."""
    # No other test moves its slot: all servers agree on the owner from the start.
    name, config = "sent on", LockConfig(command_timeout=6)
    is_renewal = script(RENEW)
    async with (
        proxied(calm) as (user, proxies),
        LockClient(user, config=config) as locks,
        locks.lock(name) as lease,
    ):
        owner = calm.owner_of(name)
        other = next(server for server in calm.primaries if server is not owner)
        await lease.renew()
        # The connection for renewals is open, too.
        await until(lambda: locks.statistics().connections == 2)
        moved = b"MOVED %d %s:%d" % (key_slot(name.encode()), other.host.encode(), other.port)
        away = proxies[owner.port].install(Rule(is_renewal, refuse(moved)))
        resting = proxies[other.port].install(Rule(is_renewal, refuse(b"TRYAGAIN"), ALWAYS))
        await lease.renew()
        renewals = proxies[owner.port].install(Rule(is_renewal, delay(0), ALWAYS))
        # After this time, a renewal without an answer would be sent on the other connection, too.
        await asyncio.sleep(Timing.of(config).renewal_patience)
        await lease.renew()
        assert away.requests
        assert resting.requests
        # The client may ask for the lock by itself, too: each renewal has a number of its own.
        numbers = [each.args[-2] for each in renewals.requests]
        assert len(numbers) == len(set(numbers)) > 0
        assert away.requests[0].args[-2] not in numbers
