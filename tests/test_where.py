"""The names of servers in words for people."""

from redis.asyncio import Redis, RedisCluster, Sentinel

from aiolock import LockClient


async def test_a_client_names_its_servers_and_no_password() -> None:
    sentinel: Sentinel = Sentinel([("a", 26379), ("b", 26379)], sentinel_kwargs={"password": "sesame"})  # type: ignore[no-untyped-call]
    one = Redis(host="::1", port=6400, db=2, username="me", password="sesame")
    clients = {
        "redis://[::1]:6400/2": LockClient(one),
        "rediss://locks:6379/0": LockClient.from_url("rediss://me:sesame@locks"),
        "unix:///run/redis?db=0": LockClient.from_url("unix://me:sesame@/run/redis"),
        "primary orders of the Sentinels redis://a:26379/0, redis://b:26379/0": LockClient(
            sentinel.master_for("orders", password="sesame")
        ),
        "cluster of node:7000": LockClient(RedisCluster(host="node", port=7000, password="sesame")),
        "redis://a:1/0, redis://b:1/0, redis://c:1/0": LockClient.redlock(Redis(host=name, port=1) for name in "abc"),
    }
    assert {name: client._where() for name, client in clients.items()} == {name: name for name in clients}
