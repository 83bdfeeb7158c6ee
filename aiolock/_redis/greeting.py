"""What a server says of itself as it is greeted: whether it is what it is taken for, and which one it is."""

import re
from typing import Any

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ResponseError

from aiolock._redis.connection import ask

_SENTINEL = "this is a Sentinel, which keeps no locks: give LockClient what sentinel.master_for(name) makes"
_BY_ITSELF = {b"cluster": "this server is part of a cluster: give LockClient a RedisCluster", b"sentinel": _SENTINEL}
_IN_A_CLUSTER = {b"standalone": "this server is part of no cluster: give LockClient a Redis", b"sentinel": _SENTINEL}


async def check_kind(connection: AbstractConnection, *, in_a_cluster: bool) -> None:
    """Raise `ResponseError` if the server keeps none of our locks; not if it says nothing of what it is."""
    answer = await ask(connection, "HELLO", "2")  # No user can be refused it.
    if isinstance(answer, list):
        mode: Any = dict(zip(answer[::2], answer[1::2], strict=False)).get(b"mode")
        if (why := (_IN_A_CLUSTER if in_a_cluster else _BY_ITSELF).get(mode)) is not None:
            raise ResponseError(why)


async def place_of(connection: AbstractConnection) -> bytes | None:
    """Which server answers: its own address; ``None`` if it does not tell, as before Redis 6.2."""
    answer = await ask(connection, "CLIENT", "INFO")
    found = re.search(rb" laddr=(\S+)", answer) if isinstance(answer, bytes) else None
    return None if found is None else found[1]
