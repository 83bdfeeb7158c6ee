"""The server of a client of redis-py, as a text for people: never with a user or a password."""

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.sentinel import SentinelConnectionPool


def where(redis: "Redis | RedisCluster") -> str:
    """The text for one server, for the primary that Sentinels name, or for a cluster."""
    if isinstance(redis, RedisCluster):
        nodes = [*redis.nodes_manager.startup_nodes.values(), *redis.get_nodes()]
        return f"cluster of {place(nodes[0].host, int(nodes[0].port))}"
    pool = redis.connection_pool
    if isinstance(pool, SentinelConnectionPool):
        asked = ", ".join(address(each) for each in pool.sentinel_manager.sentinels)
        return f"primary {pool.service_name} of the Sentinels {asked}"
    return address(redis)


def address(redis: "Redis") -> str:
    """The server that *redis* connects to."""
    settings = redis.connection_pool.connection_kwargs
    if "path" in settings:
        return f"unix://{settings['path']}?db={database(redis)}"
    scheme = "rediss" if "SSL" in redis.connection_pool.connection_class.__name__ else "redis"
    return f"{scheme}://{place(settings.get('host', 'localhost'), settings.get('port', 6379))}/{database(redis)}"


def place(host: str, port: int) -> str:
    """Host and port as in a URL."""
    return f"{f'[{host}]' if ':' in host else host}:{port}"


def database(redis: "Redis") -> int:
    """The number of the database that *redis* uses."""
    return redis.connection_pool.connection_kwargs.get("db") or 0
