"""The id of a client says who it is, and stands where ids of Redisson stand."""

import os
import socket

import pytest

from aiolock._identity import Identity, Owner, detached_id, identity_of, new_id, owner_of, random_part

SNOW = "\N{SNOWMAN}"
HARD = [
    "a:named:b",
    "{web}",
    "a b",
    "50%",
    "web@eu/1",
    "x#1#2",
    "a\nb",
    "\N{SNOWMAN} é",
    "*?[\\]",
    "a:1:write",
    "-",
    "~.",
]
# The most characters of a part of an id.
RANDOM, HOST, PID, NAME = 32, 64, 18, 64
WORST = RANDOM + len("@") + HOST + len("/") + PID + len("/") + NAME


def id_of(host: str, name: str | None) -> str:
    """The id of a client on that *host*."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "gethostname", lambda: host)
        return new_id(name)


@pytest.mark.parametrize("text", HARD)
def test_any_name_of_a_host_or_a_client_is_read_from_the_id(text: str) -> None:
    assert identity_of(id_of(text, text)) == Identity(text, os.getpid(), text)
    assert identity_of(id_of(text, None)) == Identity(text, os.getpid(), None)


def test_an_id_divides_no_key_and_is_short() -> None:
    for text in [*HARD, "h" * 100, SNOW * 100, *map(chr, range(1, 128))]:
        client = id_of(text, text)
        assert client.isascii()
        assert not set(client) & set(":{}# \n*?[]\\")
        assert len(client) <= WORST
        identity = identity_of(client)
        assert identity.host
        assert text.startswith(identity.host)
        assert identity.client_name == identity.host


def test_a_long_name_is_cut_between_two_characters() -> None:
    assert identity_of(id_of("h" * 100, "n" * 100)) == Identity("h" * HOST, os.getpid(), "n" * NAME)
    assert identity_of(id_of("ab" + SNOW * 100, None)).host == "ab" + SNOW * 6


def test_the_longest_id_is_read() -> None:
    client = f"{'0' * RANDOM}@{'h' * HOST}/{'9' * PID}/{'n' * NAME}"
    assert len(client) == WORST
    assert identity_of(client) == Identity("h" * HOST, int("9" * PID), "n" * NAME)
    assert identity_of(f"{'0' * RANDOM}@web/{'9' * (PID + 1)}") == Identity()


def test_a_host_whose_name_is_no_text_or_not_there_has_an_id() -> None:
    assert identity_of(id_of("web\udcff", None)).host == "web?"
    assert identity_of(id_of("", None)).host == "localhost"


def test_each_client_has_random_bits_of_its_own() -> None:
    parts = {random_part(new_id("web")) for _ in range(100)}
    assert len(parts) == 100
    assert {len(bytes.fromhex(part)) for part in parts} == {16}


@pytest.mark.parametrize(
    "client",
    ["", "3f0e7bd4-0000-4000-8000-000000000001", "0" * 32, "0" * 32 + "@web", "0" * 32 + "@web/x", "@web/1", "a@web/1"],
)
def test_an_id_of_redisson_or_of_an_older_client_names_no_host(client: str) -> None:
    assert identity_of(client) == Identity(None, None, None)


def test_an_identity_has_the_names_of_its_fields_in_json() -> None:
    assert Identity("web-1", 42, "shop").as_dict() == {"host": "web-1", "pid": 42, "client_name": "shop"}


@pytest.mark.parametrize(
    ("within", "text", "named"),
    [
        ("7", "7", False),
        ("named:web", "web", True),
        ("named:detached:0f:7", "detached:0f:7", True),
        ("kept", "kept", False),
    ],
)
def test_an_owner_is_read_from_its_id_also_while_its_lock_is_detached(within: str, text: str, named: bool) -> None:
    client = new_id("api")
    owner = f"{client}:{within}"
    assert owner_of(owner) == Owner(client, text, named, detached=False)
    assert owner_of(detached_id(owner, "0f" * 16)) == Owner(client, text, named, detached=True)
