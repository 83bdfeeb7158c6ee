"""Whether a server is what it is taken for: one by itself, or a part of a cluster. It says so as it greets."""

from typing import Any

GREETING = ("HELLO", "2")  # No user can be refused it.

_SENTINEL = "this is a Sentinel, which keeps no locks: give LockClient what sentinel.master_for(name) makes"
_BY_ITSELF = {b"cluster": "this server is part of a cluster: give LockClient a RedisCluster", b"sentinel": _SENTINEL}
_IN_A_CLUSTER = {b"standalone": "this server is part of no cluster: give LockClient a Redis", b"sentinel": _SENTINEL}


def refusal(answer: Any, *, in_a_cluster: bool) -> str | None:
    """Why the server that greets with *answer* keeps none of our locks; ``None`` if it does, or says nothing of it."""
    if not isinstance(answer, list):
        return None
    mode = dict(zip(answer[::2], answer[1::2], strict=False)).get(b"mode", b"")
    return (_IN_A_CLUSTER if in_a_cluster else _BY_ITSELF).get(mode)
