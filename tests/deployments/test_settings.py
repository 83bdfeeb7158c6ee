"""Users make their `Redis` in many ways: with each of them, everything works or an error says what to change."""

import asyncio
import importlib.util
from time import monotonic
from typing import Any

import pytest
import redis.asyncio.connection as connections
from redis.asyncio import BlockingConnectionPool, ConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import ExponentialBackoff
from redis.credentials import CredentialProvider, UsernamePasswordCredentialProvider
from redis.exceptions import NoPermissionError, OutOfMemoryError, ReadOnlyError, ResponseError, TryAgainError

from aiolock import BackendError, LockClient, LockConfig
from aiolock._embedded_server import Server
from aiolock._redis.error_replies import understood
from tests.deployments.session import session
from tests.support.observe import until_connected

NAME = "orders:42"
SETTINGS: dict[str, dict[str, Any]] = {
    "another database": {"db": 5},
    "decoded": {"decode_responses": True, "encoding": "latin-1"},
    "RESP2": {"protocol": 2},
    "RESP3": {"protocol": 3},
    "RESP3, decoded": {"protocol": 3, "decode_responses": True},
    "one connection": {"single_connection_client": True},
    "a name": {"client_name": "web-1"},
    "retries": {"retry": Retry(ExponentialBackoff(1, 0.1), 5), "retry_on_timeout": True},
    "retried errors": {"retry": Retry(ExponentialBackoff(1, 0.1), 5), "retry_on_error": [ConnectionError]},
    "impatient": {"socket_timeout": 0.001, "socket_connect_timeout": 5},
    "health checks": {"health_check_interval": 1},
    "kept alive": {"socket_keepalive": True, "socket_keepalive_options": {}},
    "a small pool": {"max_connections": 1},
}


async def works(user: Redis, own: Server) -> None:
    """Locks of *user* do what they do for a plain client."""
    config = LockConfig(command_timeout=10)
    async with LockClient(user, config=config) as client, LockClient(user, config=config) as other:
        async with asyncio.timeout(40):
            tokens = await session(client, other, NAME)
        assert tokens == sorted(set(tokens))
        assert client.statistics().connections <= 3
    await user.aclose()


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=list(SETTINGS))
@pytest.mark.parametrize("address", ["url", "unix_url"])
async def test_settings_of_redis_py_do_no_harm(
    server: Server, redis: Redis, address: str, settings: dict[str, Any]
) -> None:
    settings = {name: value for name, value in settings.items() if address == "url" or "keepalive" not in name}
    await works(Redis.from_url(getattr(server, address), **settings), server)


async def test_the_database_is_that_of_the_client(server: Server, redis: Redis) -> None:
    fifth = Redis.from_url(server.url, db=5)
    async with LockClient(fifth) as there, LockClient(redis) as here, there.lock(NAME):
        assert await fifth.exists(NAME)
        assert await here.lock(NAME).try_lock() is not None
    await fifth.aclose()


async def test_connections_have_the_name_of_the_users_or_that_of_the_config(server: Server, redis: Redis) -> None:
    async def names() -> set[str]:
        return {entry["name"] for entry in await redis.client_list()} - {""}

    async with LockClient.from_url(server.url, client_name="theirs") as client, client.lock(NAME):
        assert await names() == {"theirs"}
    await until_connected(redis, 1)
    config = LockConfig(client_name="ours")
    async with LockClient.from_url(server.url, client_name="theirs", config=config) as client, client.lock(NAME):
        assert await names() == {"ours"}


@pytest.mark.parametrize("pool", [ConnectionPool, BlockingConnectionPool])
async def test_a_pool_that_is_used_up_is_none_of_our_business(
    server: Server, redis: Redis, pool: type[ConnectionPool]
) -> None:
    user: Redis = Redis(connection_pool=pool.from_url(server.url, max_connections=1))
    async with user.client() as only:
        await only.ping()
        async with LockClient(user) as client, LockClient(user) as other:
            await session(client, other, NAME)
    await user.connection_pool.disconnect()
    await user.aclose()
    await until_connected(redis, 1)


class Rotating(CredentialProvider):
    """Gives the password that is valid at the moment, as a vault does."""

    def __init__(self, password: str) -> None:
        self.password = password
        self.asked = 0

    def get_credentials(self) -> tuple[str]:
        self.asked += 1
        return (self.password,)


async def test_a_password_that_changes_is_asked_for_again(own: Server) -> None:
    provider = Rotating("first")
    async with Redis.from_url(own.url) as admin:
        await admin.config_set("requirepass", "first")
        async with LockClient.from_url(own.url, credential_provider=provider) as client, client.lock(NAME) as lease:
            asked = provider.asked
            assert asked >= 1
            await admin.config_set("requirepass", "second")
            provider.password = "second"
            await admin.client_kill_filter(_type="normal", skipme=True)
            await lease.renew()
            assert provider.asked > asked


@pytest.mark.parametrize("secret", ["secret", "wrong"])
async def test_a_user_and_its_password_of_a_provider(own: Server, secret: str) -> None:
    async with Redis.from_url(own.url) as admin:
        await admin.acl_setuser(
            "web", enabled=True, passwords=["+secret"], categories=["+@all"], keys=["*"], channels=["*"]
        )
    provider = UsernamePasswordCredentialProvider("web", secret)
    config = LockConfig(command_timeout=30)
    async with LockClient.from_url(own.url, credential_provider=provider, config=config) as client:
        started = monotonic()
        if secret == "secret":
            await client.lock(NAME, owner="me").acquire()
        else:
            with pytest.raises(BackendError, match=r"(?i)invalid username-password pair"):
                await client.lock(NAME).acquire()
        assert monotonic() - started < 15


async def test_a_connection_class_of_the_user_is_used(server: Server, redis: Redis) -> None:
    made = []

    class Mine(connections.Connection):
        def __init__(self, **settings: Any) -> None:
            made.append(self)
            super().__init__(**settings)

    await works(Redis(connection_pool=ConnectionPool.from_url(server.url, connection_class=Mine)), server)
    assert made


@pytest.mark.skipif(
    importlib.util.find_spec("redis.maint_notifications") is None,
    reason="this redis-py does not follow the maintenance of servers",
)
async def test_a_client_that_is_made_while_its_server_is_moved_keeps_the_name_of_its_server(
    server: Server, redis: Redis
) -> None:
    """Redis Enterprise announces the move, and redis-py's pool has the other address until the move is over."""
    user = Redis(host=server.host, port=server.port)
    handler = user.connection_pool.connection_kwargs.get("maint_notifications_pool_handler")
    assert handler is not None
    notifications = importlib.import_module("redis.maint_notifications")
    moving = notifications.NodeMovingNotification(1, "127.0.0.9", server.port, 60)
    await handler.handle_notification(moving)
    assert user.connection_pool.connection_kwargs["host"] == "127.0.0.9"
    client = LockClient(user, config=LockConfig(command_timeout=1))
    await handler.handle_node_moved_notification(moving)
    await handler.cancel_scheduled_tasks()
    async with client, client.lock(NAME):
        assert await user.exists(NAME)
    await user.aclose()


# Settings that cannot work.


class NoConnection:
    def __init__(self, **settings: Any) -> None:
        pass


async def test_a_connection_of_another_kind_is_a_type_error() -> None:
    pool = ConnectionPool(connection_class=NoConnection)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"connection class of redis\.asyncio, not .*NoConnection"):
        LockClient(Redis(connection_pool=pool))


async def test_a_client_of_sentinels_is_accepted_and_fails_when_none_answers() -> None:
    sentinel = Sentinel([("127.0.0.1", 1)])  # type: ignore[no-untyped-call]
    user = sentinel.master_for("primary", redis_class=Redis)
    async with LockClient(user, config=LockConfig(command_timeout=0.9)) as client:
        with pytest.raises(BackendError):
            await client.lock(NAME).acquire()
    await user.aclose()


# The meaning of error replies.


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        ("-READONLY You can't write against a read only replica.", ReadOnlyError),
        ("-OOM command not allowed when used memory > 'maxmemory'.", OutOfMemoryError),
        ("-NOPERM this user has no permissions to access one of the keys used as arguments", NoPermissionError),
    ],
    ids=["READONLY", "OOM", "NOPERM"],
)
def test_a_refusal_inside_of_a_script_is_understood_as_redis_6_puts_it(reply: str, kind: type[Exception]) -> None:
    wrapped = f"Error running script (call to f_5776e4f8): @user_script:1: @user_script: 1: {reply}"
    error = understood(ResponseError(wrapped))
    assert type(error) is kind
    assert str(error) == reply[1:], "the code word is a part of the words"


def test_other_errors_of_a_script_are_left_as_they_are() -> None:
    wrapped = "Error running script (call to f_5776e4f8): @user_script:1: user_script:1: Script attempted to ..."
    assert str(understood(ResponseError(wrapped))) == wrapped


@pytest.mark.parametrize("words", ["TRYAGAIN", "TRYAGAIN Multiple keys request during rehashing of slot"])
def test_an_error_of_a_cluster_keeps_its_words(words: str) -> None:
    error = understood(ResponseError(words))
    assert type(error) is TryAgainError
    assert str(error) == words
