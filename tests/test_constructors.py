"""A client makes the handles; a call of their classes, like that of redis-py's lock, is refused at once."""

import inspect
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from redis.asyncio import Redis

import aiolock
import aiolock.blocking

# The words of a call, as far as users may guess them; `client` stands for the client of the module.
CALLS: tuple[Callable[..., object], ...] = (
    lambda made, client: made("orders"),
    lambda made, client: made(Redis()),
    lambda made, client: made(Redis(), "orders"),
    lambda made, client: made(client, "orders"),
    lambda made, client: made(Redis(), "orders", 10),
    lambda made, client: made(Redis(), "orders", 10, None),
    lambda made, client: made(Redis(), "orders", timeout=10),
    lambda made, client: made(client.lock("a"), client.lock("b")),
)


def made_by_a_client(module: ModuleType) -> list[type[Any]]:
    """The classes of locks, semaphores and so on, but not those of their blocks."""
    names = [name for name in module.__all__ if re.fullmatch(r"(?!Held)\w*(Lock|Semaphore|Latch|Leader|Once)", name)]
    return [getattr(module, name) for name in names]


@pytest.mark.parametrize("module", [aiolock, aiolock.blocking], ids=lambda module: module.__name__)
def test_a_class_that_is_called_in_place_of_its_factory_says_so(module: ModuleType) -> None:
    client = module.LockClient(Redis())
    wrong = []
    assert len(made_by_a_client(module)) == 11
    for made in made_by_a_client(module):
        for call in CALLS:
            try:
                call(made, client)
            except TypeError as error:
                if str(error).startswith("call a method of LockClient instead, such as LockClient(redis).lock('"):
                    continue
            wrong.append((made.__name__, inspect.getsource(call).strip()))
    assert wrong == []
