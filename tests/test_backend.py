"""One server: calls are batched, answered in their order, sent again when that can help, and failed in time."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from time import monotonic
from typing import Any
from weakref import ref

import pytest
from redis import AuthenticationError, ReadOnlyError, RedisError, ResponseError
from redis import ConnectionError as RedisConnectionError
from redis.asyncio import Redis
from redis.credentials import CredentialProvider
from redis.exceptions import NoPermissionError

from aiolock import BackendError, LockClient, LockConfig
from aiolock._backend import Call, Client
from aiolock._config import Timing
from aiolock._embedded_server import Server
from aiolock._redis.backend import OneServer
from aiolock._redis.connector import Connector
from aiolock._scripts import Script
from tests.support.calls import acquire_and_release
from tests.support.inside import keys_of, notifier_of, task_of
from tests.support.inside import submit as submit_within
from tests.support.observe import connected, until, until_connected
from tests.support.proxy import ALWAYS, Proxy, Rule, drop_reply, refuse, reset, script, slow_reply, withhold_reply
from tests.support.uncollected import uncollected

TIMEOUT = 1.8
TIMING = Timing.of(LockConfig(command_timeout=TIMEOUT))


def made_of(source: str, **how: Any) -> Script:
    script = Script("test", (), **how)
    vars(script)["source"] = source
    return script


ECHO = made_of("return {ARGV[1]}")
ADD = made_of("return {redis.call('INCR', KEYS[1])}")
FAIL = made_of("return redis.error_reply('ERR no')")
TYPE_ERROR = made_of("return redis.call('HGET', KEYS[1], 'field')")


def submit(backend: OneServer, script: Script, keys: tuple[str, ...], *args: Any, **how: Any) -> Call:
    return submit_within(backend, script, keys, *args, **({"patience": TIMEOUT} | how))


@asynccontextmanager
async def backend_of(url: str, timing: Timing = TIMING, **settings: Any) -> AsyncIterator[OneServer]:
    user = Redis.from_url(url, **settings)
    backend = OneServer(Connector.of(user, None, 5), timing, Client())
    try:
        yield backend
    finally:
        await backend.aclose()
        await user.aclose()


@pytest.fixture
async def backend(proxy: Proxy) -> AsyncIterator[OneServer]:
    """A backend that is connected, and knows `ECHO`."""
    async with backend_of(proxy.url) as backend:
        assert await echo(backend, "warm") == [b"warm"]
        yield backend


async def echo(backend: OneServer, word: str, **how: Any) -> list[Any]:
    answer: list[Any] = await submit(backend, ECHO, (), (word,), **how)
    return answer


async def test_nothing_is_connected_before_the_first_call(proxy: Proxy) -> None:
    async with backend_of(proxy.url) as backend:
        assert backend.statistics().connections == 0
        await echo(backend, "x")
        assert backend.statistics().connections == len(proxy.connections) == 1


async def test_the_calls_of_a_turn_leave_as_one_batch(proxy: Proxy, backend: OneServer) -> None:
    """After a call that was alone, the first of them leaves before the others are submitted."""
    await echo(backend, "alone")
    for expected in (2, 1, 1):
        batches, commands = backend.statistics().batches, backend.statistics().commands
        calls = [submit(backend, ECHO, (), (word,)) for word in "abcde"]
        assert backend.statistics().pending == 5
        assert [await call for call in calls] == [[word.encode()] for word in "abcde"]
        assert (backend.statistics().batches, backend.statistics().commands) == (batches + expected, commands + 5)
        assert backend.statistics().pending == 0


async def test_a_lone_call_leaves_in_the_turn_that_submits_it(backend: OneServer) -> None:
    for word in "abc":
        batches = backend.statistics().batches
        call = submit(backend, ECHO, (), (word,))
        assert backend.statistics().batches == batches + 1
        assert await call == [word.encode()]


async def test_a_call_that_moves_to_another_server_before_it_is_sent_wakes_its_task(
    server: Server, backend: OneServer
) -> None:
    async with backend_of(server.url) as other:
        # After two calls in one turn, the next one leaves in the turn after its own.
        assert [*await asyncio.gather(echo(backend, "one"), echo(backend, "two"))] == [[b"one"], [b"two"]]
        asking = asyncio.create_task(echo(backend, "word"))

        def move() -> None:
            [call] = backend.only.ordinary.take(lambda call: True)
            other.submit(call)

        asyncio.get_running_loop().call_soon(move)
        async with asyncio.timeout(10):
            assert await asking == [b"word"]


async def test_a_call_that_fails_is_freed_without_the_garbage_collector(backend: OneServer) -> None:
    call = ref(failing := submit(backend, FAIL, ()))
    with uncollected():
        with pytest.raises(BackendError):
            await failing
        del failing
        assert call() is None


async def test_a_connection_that_was_reset_keeps_no_task(proxy: Proxy, backend: OneServer) -> None:
    reset_once = proxy.install(Rule(script(ECHO), reset()))
    asking = asyncio.create_task(echo(backend, "word"))
    with uncollected():
        assert await asking == [b"word"]
        assert reset_once.requests
        asked = ref(asking)
        del asking
        # The loop keeps it until the next turn.
        await asyncio.sleep(0)
        assert asked() is None


async def test_a_call_does_not_wait_for_the_reply_of_an_earlier_one(proxy: Proxy, backend: OneServer) -> None:
    rule = proxy.install(Rule(script(ECHO), withhold_reply()))
    first = submit(backend, ECHO, (), ("first",))
    await rule.caught()
    second = submit(backend, ECHO, (), ("second",))
    await proxy.saw(lambda request: request.args[-1] == b"second")
    rule.let_go()
    assert (await first, await second) == ([b"first"], [b"second"])


async def test_an_urgent_call_does_not_wait_for_ordinary_ones(proxy: Proxy, backend: OneServer) -> None:
    rule = proxy.install(Rule(script(ECHO), withhold_reply()))
    first = submit(backend, ECHO, (), ("ordinary",))
    await rule.caught()
    assert await submit(backend, made_of(ECHO.source, urgent=True), (), ("urgent",)) == [b"urgent"]
    assert not first.ended
    assert backend.statistics().connections == 2
    used = {request.args[-1]: request.connection for request in proxy.requests}
    assert used[b"ordinary"] != used[b"urgent"]
    rule.let_go()
    assert await first == [b"ordinary"]


async def test_a_script_is_sent_whole_once_for_each_connection(proxy: Proxy, backend: OneServer) -> None:
    await echo(backend, "again")
    proxy.reset_all()
    await echo(backend, "and again")
    await echo(backend, "at last")
    sent = [request.name for request in proxy.requests if script(ECHO)(request)]
    assert sent == [b"EVAL", b"EVALSHA", b"EVAL", b"EVALSHA"]


async def test_forgotten_scripts_are_sent_whole_again_in_their_order(redis: Redis, backend: OneServer) -> None:
    log = made_of("return {redis.call('RPUSH', KEYS[1], ARGV[1])}")
    await submit(backend, log, ("log",), ("0",))
    await redis.script_flush()
    for call in [submit(backend, log, ("log",), (str(number),)) for number in range(1, 6)]:
        await call
    assert await redis.lrange("log", 0, -1) == [b"%d" % number for number in range(6)]


async def test_a_call_that_the_server_refuses_fails_at_once_and_alone(redis: Redis, backend: OneServer) -> None:
    await redis.set("text", "x")
    before = submit(backend, ECHO, (), ("before",))
    failing = [submit(backend, FAIL, ()), submit(backend, TYPE_ERROR, ("text",))]
    after = submit(backend, ECHO, (), ("after",))
    for call in failing:
        with pytest.raises(BackendError) as raised:
            await call
        assert isinstance(raised.value.__cause__, ResponseError)
    assert (await before, await after) == ([b"before"], [b"after"])


@pytest.mark.parametrize("in_silence", [False, True])
async def test_a_call_whose_reply_is_lost_is_sent_again(
    redis: Redis, proxy: Proxy, backend: OneServer, in_silence: bool
) -> None:
    proxy.install(Rule(script(ADD), drop_reply(reset=not in_silence)))
    call = submit(backend, ADD, ("n",))
    assert await call == [2]
    assert call.repeated


async def test_a_connection_that_answers_slowly_but_steadily_is_kept(proxy: Proxy, backend: OneServer) -> None:
    """Each unanswered call soon waits for longer than the server may be silent."""
    proxy.install(Rule(script(ECHO), slow_reply(TIMING.patience / 5), times=ALWAYS))
    calls = [submit(backend, ECHO, (), (str(number),), patience=60) for number in range(15)]
    assert [await call for call in calls] == [[b"%d" % number] for number in range(15)]
    assert not any(call.repeated for call in calls)


async def test_a_call_goes_on_without_its_caller(redis: Redis, proxy: Proxy, backend: OneServer) -> None:
    lost = proxy.install(Rule(script(ADD), reset()))
    waiting = asyncio.ensure_future(wait_for(submit(backend, ADD, ("n",))))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    await lost.caught()
    await backend.drained()
    assert await redis.get("n") == b"1"


async def wait_for(call: Awaitable[Any]) -> None:
    await call


async def answers(backend: OneServer) -> bool:
    with suppress(BackendError):
        return await echo(backend, "it is back") == [b"it is back"]
    return False


async def test_when_nobody_listens_a_call_fails_after_the_command_timeout(proxy: Proxy) -> None:
    await proxy.refuse()
    async with backend_of(proxy.url) as backend:
        started = monotonic()
        with pytest.raises(BackendError) as raised:
            await echo(backend, "x")
        assert TIMEOUT * 0.9 < monotonic() - started < TIMEOUT + 1
        assert isinstance(raised.value.__cause__, RedisConnectionError)
        assert backend.statistics().pending == backend.statistics().connections == 0
        await proxy.accept()
        await until(lambda: answers(backend))


async def test_a_call_is_tried_no_longer_than_its_patience(proxy: Proxy, backend: OneServer) -> None:
    proxy.black_hole()
    started = monotonic()
    call = submit(backend, ECHO, (), ("x",), patience=0.2)
    with pytest.raises(BackendError, match="no answer in time"):
        await call
    assert monotonic() - started < TIMEOUT
    proxy.restore()
    await backend.drained()


async def test_a_call_that_fails_tells_its_own_trouble(proxy: Proxy) -> None:
    """The server has refused one call for the moment, and has not answered the other one."""
    async with backend_of(proxy.url, Timing.of(LockConfig(command_timeout=30))) as backend:
        proxy.install(Rule(script(ECHO), refuse(b"OOM command not allowed"), ALWAYS))
        silent = proxy.install(Rule(script(ADD), withhold_reply()))
        refused, unanswered = submit(backend, ECHO, (), ("x",)), submit(backend, ADD, ("x",))
        with pytest.raises(BackendError, match=r"refused all the time \(OOM command not allowed"):
            await refused
        with pytest.raises(BackendError, match=r"no answer in time \(no reply in time"):
            await unanswered
        silent.let_go()
        await backend.drained()


async def test_a_call_whose_connection_has_no_task_any_more_fails_at_once(proxy: Proxy, backend: OneServer) -> None:
    """Other code cancels the task; the first time, it waits for answers that are still to come."""
    silent = proxy.install(Rule(script(ADD), withhold_reply()))
    unanswered = submit(backend, ADD, ("x",))
    await silent.caught()
    reader = task_of(backend)
    while not reader.done():
        reader.cancel()
        await asyncio.sleep(0)
    with pytest.raises(BackendError, match=r"no answer \(the task of the connection was cancelled\)"):
        await unanswered
    silent.let_go()


async def test_a_call_with_a_later_end_is_sent_though_its_caller_was_told_of_a_failure(
    redis: Redis, proxy: Proxy, backend: OneServer
) -> None:
    proxy.install(Rule(script(ADD), reset(), ALWAYS))
    lasting = submit(backend, ADD, ("lasting",), patience=0.1, resend_until=monotonic() + 20)
    brief = submit(backend, ADD, ("brief",), patience=0.1)
    for call in (lasting, brief):
        with pytest.raises(BackendError):
            await call
    await until(lambda: backend.statistics().pending == 1)
    proxy.clear_rules()
    await backend.drained()
    assert (await redis.get("lasting"), await redis.get("brief")) == (b"1", None)


async def test_a_reply_that_comes_after_the_failure_is_taken_for_no_other_call(
    proxy: Proxy, backend: OneServer
) -> None:
    rule = proxy.install(Rule(script(ECHO), withhold_reply()))
    first = submit(backend, ECHO, (), ("late",), patience=0.05)
    with pytest.raises(BackendError):
        await first
    second = submit(backend, ECHO, (), ("next",))
    rule.let_go()
    assert await second == [b"next"]


async def test_a_reply_is_taken_for_no_other_call_when_all_tasks_are_cancelled_as_the_connection_is_given_up(
    proxy: Proxy, backend: OneServer
) -> None:
    rule = proxy.install(Rule(script(ECHO), withhold_reply()))
    first = submit(backend, ECHO, (), ("first",))
    await rule.caught()
    [server] = backend.servers()
    server.ordinary.connection.fail()
    [reader] = [task for task in asyncio.all_tasks() if "<Connection._run()" in repr(task)]
    reader.cancel()
    second = submit(backend, ECHO, (), ("second",))
    assert (await first, await second) == ([b"first"], [b"second"])
    rule.let_go()


async def test_closing_fails_pending_calls_and_later_ones(redis: Redis, proxy: Proxy, backend: OneServer) -> None:
    proxy.black_hole()
    pending = submit(backend, ECHO, (), ("pending",))
    await backend.aclose()
    with pytest.raises(BackendError, match="closed"):
        await pending
    with pytest.raises(BackendError, match="closed"):
        await echo(backend, "late")
    assert backend.statistics().connections == 0
    proxy.restore()


async def test_the_pool_of_the_user_is_left_alone(server: Server, redis: Redis) -> None:
    alone = await connected(redis)
    user = Redis.from_url(server.url, max_connections=1)
    async with user.client() as only:
        await only.ping()
        backend = OneServer(Connector.of(user, "its-own", 5), TIMING, Client())
        assert await echo(backend, "x") == [b"x"]
        assert await connected(redis) == alone + 2
        assert [entry["name"] for entry in await redis.client_list() if entry["name"]] == ["its-own"]
        await backend.aclose()
    await user.aclose()
    await until_connected(redis, alone)


@pytest.mark.parametrize("url", ["url", "unix_url"])
async def test_each_kind_of_address_works(server: Server, redis: Redis, url: str) -> None:
    async with backend_of(getattr(server, url), decode_responses=True, protocol=3, db=3) as backend:
        await submit(backend, ADD, ("n",))
    assert await redis.get("n") is None
    async with Redis.from_url(server.url, db=3) as third:
        assert await third.get("n") == b"1"


# Refusals of the server, on servers of our own.


@pytest.mark.parametrize("settings", [{}, {"password": "wrong"}, {"username": "nobody", "password": "x"}], ids=str)
async def test_wrong_credentials_fail_at_once(own: Server, settings: dict[str, Any]) -> None:
    async with Redis.from_url(own.url) as operator:
        await operator.config_set("requirepass", "secret")
    async with backend_of(own.url, **settings) as backend:
        started = monotonic()
        with pytest.raises(BackendError) as raised:
            await submit(backend, ECHO, (), ("x",), patience=60)
        assert monotonic() - started < 30
        assert isinstance(raised.value.__cause__, AuthenticationError)
    async with backend_of(own.url, password="secret") as backend:
        assert await echo(backend, "x") == [b"x"]


class Refreshing(CredentialProvider):
    """Its callers wait for the same refresh, which ends with whoever began it: the first ones are cancelled."""

    def __init__(self, cancelled: int) -> None:
        self._cancelled = cancelled

    async def get_credentials_async(self) -> tuple[str]:
        refresh = asyncio.create_task(asyncio.sleep(0))
        if self._cancelled:
            self._cancelled -= 1
            refresh.cancel()
        await refresh
        return ("secret",)


@pytest.mark.skipif(
    not hasattr(CredentialProvider, "get_credentials_async"), reason="this redis-py awaits no credentials"
)
async def test_credentials_whose_refresh_is_cancelled_end_no_connection_for_good(own: Server) -> None:
    """A connection takes a cancellation for the end of its loop only if it was cancelled itself."""
    async with Redis.from_url(own.url) as operator:
        await operator.config_set("requirepass", "secret")
    config = LockConfig(command_timeout=30)
    async with LockClient.from_url(own.url, credential_provider=Refreshing(3), config=config) as locks:
        async with LockClient.from_url(own.url, password="secret") as other:
            lease = await other.lock("a").acquire()
            waiting = asyncio.create_task(acquire_and_release(locks.lock("a")))
            await until(lambda: notifier_of(locks).confirmed(keys_of(locks.lock("a")).channel))
            await lease.release()
            await waiting
        assert locks.statistics().connections == 2


async def test_a_user_without_permission_fails_at_once(own: Server) -> None:
    async with Redis.from_url(own.url) as operator:
        await operator.acl_setuser("reader", enabled=True, passwords=["+x"], categories=["+@read", "+@connection"])
    async with backend_of(own.url, username="reader", password="x") as backend:
        with pytest.raises(BackendError) as raised:
            await echo(backend, "x")
        assert isinstance(raised.value.__cause__, NoPermissionError)


async def test_a_password_that_the_server_demands_later_fails_the_next_call(own: Server) -> None:
    async with Redis.from_url(own.url) as operator, backend_of(own.url) as backend:
        assert await echo(backend, "x") == [b"x"]
        await operator.config_set("requirepass", "secret")
        await operator.client_kill_filter(_type="normal", skipme=True)
        with pytest.raises(BackendError) as raised:
            await echo(backend, "x")
        assert isinstance(raised.value.__cause__, AuthenticationError)
        await operator.config_set("requirepass", "")
        assert await echo(backend, "x") == [b"x"]


async def test_a_call_that_is_submitted_as_another_fails_for_good_fails_too(own: Server) -> None:
    async with Redis.from_url(own.url) as operator:
        await operator.config_set("requirepass", "secret")
        async with backend_of(own.url) as backend:
            later: list[Call] = []
            call = submit(backend, ECHO, (), ("x",))
            call.when_ended(lambda _: later.append(submit(backend, ECHO, (), ("y",))))
            with pytest.raises(BackendError):
                await call
            with pytest.raises(BackendError):
                await later[0]
        await operator.config_set("requirepass", "")


async def test_a_call_to_a_replica_waits_until_it_is_a_primary(own: Server) -> None:
    async with Redis.from_url(own.url) as operator, backend_of(own.url) as backend:
        with Server(own._executable) as primary:
            await operator.replicaof(primary.host, str(primary.port))
            call = submit(backend, ADD, ("n",))
            await until(lambda: refusals(operator, "READONLY"))
            assert not call.ended
            await operator.replicaof("NO", "ONE")
            assert await call == [1]


async def test_a_replica_that_stays_one_is_named_in_the_failure(own: Server) -> None:
    async with Redis.from_url(own.url) as operator, backend_of(own.url) as backend:
        await echo(backend, "connected")
        await operator.replicaof("127.0.0.1", "1")
        with pytest.raises(BackendError) as raised:
            await submit(backend, ADD, ("n",))
        assert isinstance(raised.value.__cause__, ReadOnlyError)
        assert backend.statistics().pending == 0


async def test_a_call_to_a_replica_that_lost_its_primary_is_tried_again(own: Server) -> None:
    async with Redis.from_url(own.url) as operator, backend_of(own.url) as backend:
        await operator.config_set("replica-serve-stale-data", "no")
        await operator.replicaof("127.0.0.1", "1")
        call = submit(backend, ADD, ("n",))
        await until(lambda: refusals(operator, "MASTERDOWN"))
        await operator.replicaof("NO", "ONE")
        assert await call == [1]


async def test_calls_outlive_a_restart_of_the_server(own: Server) -> None:
    async with backend_of(own.url) as backend:
        await echo(backend, "x")
        own.kill()
        call = submit(backend, ECHO, (), ("y",))
        own.start()
        assert await call == [b"y"]


async def test_a_call_to_a_server_that_is_busy_with_a_script_is_tried_again(own: Server) -> None:
    async with Redis.from_url(own.url) as operator, backend_of(own.url) as backend:
        await echo(backend, "x")
        await operator.config_set("lua-time-limit", 1)
        looping = asyncio.ensure_future(wait_for(operator.eval("while true do end", 0)))
        async with Redis.from_url(own.url) as second:
            await until(lambda: busy(second))
            call = submit(backend, ECHO, (), ("y",))
            await asyncio.sleep(0.1)
            await second.script_kill()
        with suppress(ResponseError):
            await looping
        assert await call == [b"y"]


async def test_a_call_that_the_server_cannot_serve_now_is_tried_again(own: Server) -> None:
    """This server wants replicas before it accepts a write; one that cannot write to its disk answers alike."""
    async with Redis.from_url(own.url) as operator, backend_of(own.url) as backend:
        await operator.config_set("min-replicas-to-write", 1)
        call = submit(backend, ADD, ("n",))
        await until(lambda: refusals(operator, "NOREPLICAS"))
        await operator.config_set("min-replicas-to-write", 0)
        assert await call == [1]


async def busy(redis: Redis) -> bool:
    try:
        await redis.ping()
    except RedisError:
        return True
    return False


async def refusals(redis: Redis, kind: str) -> bool:
    return f"errorstat_{kind}" in await redis.info("errorstats")


async def test_a_loop_that_is_always_late_fails_calls_all_the_same(proxy: Proxy, backend: OneServer) -> None:
    proxy.black_hole()
    call = asyncio.ensure_future(echo(backend, "lost"))
    started = monotonic()
    while not call.done() and monotonic() < started + 10 * TIMEOUT:
        # Each tick of the pipeline comes late: this is longer than the pulse.
        busy = monotonic() + 0.12
        while monotonic() < busy:
            pass
        await asyncio.sleep(0)
    with pytest.raises(BackendError):
        await asyncio.wait_for(call, 0)
