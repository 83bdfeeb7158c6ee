"""The questions to a server on a new connection: whether it is of the right kind, and which server it is."""

import re
from typing import Any

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ResponseError

from aiolock._redis.raw import ask

_SENTINEL = "this is a Sentinel, which keeps no locks: give LockClient the result of sentinel.master_for(name)"
_BY_ITSELF = {b"cluster": "this server is part of a cluster: give LockClient a RedisCluster", b"sentinel": _SENTINEL}
_IN_A_CLUSTER = {b"standalone": "this server is part of no cluster: give LockClient a Redis", b"sentinel": _SENTINEL}


async def check_kind(connection: AbstractConnection, *, in_a_cluster: bool) -> None:
    """Raise `ResponseError` if the server is of a kind that keeps no locks; not if it does not tell its kind."""
    # Every user may send HELLO.
    answer = await ask(connection, "HELLO", "2")
    if isinstance(answer, list):
        mode: Any = dict(zip(answer[::2], answer[1::2], strict=False)).get(b"mode")
        if (why := (_IN_A_CLUSTER if in_a_cluster else _BY_ITSELF).get(mode)) is not None:
            raise ResponseError(why)


async def place_of(connection: AbstractConnection) -> bytes | None:
    """The server's own address; ``None`` if the server does not tell it, as before Redis 6.2."""
    answer = await ask(connection, "CLIENT", "INFO")
    found = re.search(rb" laddr=(\S+)", answer) if isinstance(answer, bytes) else None
    return None if found is None else found[1]
