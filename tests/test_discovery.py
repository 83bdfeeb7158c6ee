"""The memory of the addresses that the servers of a cluster name."""

from collections.abc import Callable
from typing import Any

import pytest
from redis.exceptions import AskError

from aiolock._redis.cluster.discovery import Address, Discovery, Slots

ASKED = ("asked", 7000)


def nowhere(address: Address) -> Callable[[], Any]:
    raise AssertionError("nothing is asked here")


def discovery() -> Discovery:
    """A discovery with one seed, which reaches the host that a server calls `inside` by another name."""
    return Discovery(lambda: [ASKED], nowhere, lambda host, port: (host.replace("inside", "outside"), port), 1)


def told(where: Discovery, *servers: list[Any]) -> tuple[Address, list[Address]]:
    """The address of the first server, which owns all slots; and the addresses that are remembered."""
    slots = where._learn([[0, 16383, *servers]], ASKED)
    assert isinstance(slots, Slots)
    [(_, owner)] = slots.ranges
    assert where.addresses()[-1] == ASKED
    return owner, where.addresses()[:-1]


@pytest.mark.parametrize(
    ("server", "reached"),
    [
        # Servers before Redis 7 answer so.
        ([b"10.0.0.1", 1, b"id"], ("10.0.0.1", 1)),
        ([b"one", 1, b"id", [b"ip", b"10.0.0.1"]], ("one", 1)),
        ([b"?", 1, b"id", [b"ip", b"10.0.0.1"]], ("10.0.0.1", 1)),
        ([b"?", 1, b"id", []], ("asked", 1)),
        ([b"", 1, b"id", []], ("asked", 1)),
        ([None, 1, b"id", [b"ip", b"10.0.0.1", b"hostname", b"one"]], ("asked", 1)),
        ([b"inside", 1, b"id", []], ("outside", 1)),
    ],
)
def test_where_a_server_is_reached_be_it_a_primary_or_a_replica(server: list[Any], reached: Address) -> None:
    assert told(discovery(), server) == (reached, [reached])
    assert told(discovery(), [b"primary", 2, b"another"], server) == (("primary", 2), [("primary", 2), reached])


@pytest.mark.parametrize(
    ("place", "reached"),
    [
        ("10.0.0.1:1", {("10.0.0.1", 1)}),
        ("inside:1", {("outside", 1)}),
        # The redirecting server does not know its own host, or that of the other.
        (":1", {("asked", 1)}),
        # It knows the other by its IP only: any server with that port, but not itself.
        ("?:1", {("10.0.0.2", 1), ("10.0.0.3", 1)}),
        ("?:7000", {None}),
        ("?:9", {None}),
    ],
)
def test_where_a_redirection_leads(place: str, reached: set[Address | None]) -> None:
    where, by = discovery(), ("10.0.0.1", 1)
    unnamed = [[number, number, [b"?", 1, b"id", [b"ip", b"10.0.0.%d" % number]]] for number in (1, 2, 3)]
    assert where._learn([*unnamed, [4, 5, [b"named", 7000, b"id"], [b"?", 9, b"replica", []]]], ASKED)
    by = ASKED if place == ":1" else by
    assert {where.named_in(AskError(f"1 {place}"), by) for _ in range(100)} == reached


def test_servers_that_come_and_go_are_remembered_for_a_while() -> None:
    where = discovery()
    answers = [told(where, [b"primary", 1, b"id"], [b"replica", port, b"id of one"]) for port in range(1000)]
    _, remembered = answers[-1]
    assert remembered[:3] == [("primary", 1), ("replica", 999), ("replica", 998)]
    assert len(remembered) == 102
