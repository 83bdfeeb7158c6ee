"""The errors: their tree, their messages, the data they carry, and that all of it survives pickling."""

import copy
import pickle
from typing import get_args

import pytest

from aiolock import (
    AioLockError,
    BackendError,
    ClientClosedError,
    Holder,
    LeaseLostError,
    LockTimeoutError,
    LossReason,
    NotALockError,
    NotHeldError,
    OnceFailedError,
    QuorumError,
    ReplicationError,
)

HOLDER = Holder("uuid", "7", 2, 1.5, "host", 42, "web")

ERRORS: list[tuple[AioLockError, dict[str, object], str]] = [
    (
        LockTimeoutError("orders", 2.0004),
        {"name": "orders", "waited": 2.0004},
        "lock 'orders' was not granted within 2 s",
    ),
    (
        NotHeldError("orders", "uuid:1", HOLDER),
        {"name": "orders", "owner": "uuid:1", "holder": HOLDER},
        "lock 'orders' is not held by 'uuid:1': owner '7' of client 'uuid' holds it. A task or a thread can "
        "only release what it acquired itself; to release elsewhere, use `lease.release()` or a named owner",
    ),
    (
        LeaseLostError("orders", 17, "taken"),
        {"name": "orders", "token": 17, "reason": "taken", "trouble": None},
        "lock 'orders' (token 17) was lost: another owner holds it now",
    ),
    (
        LeaseLostError("orders", 17, "unreachable", "BUSY Redis is busy"),
        {"name": "orders", "token": 17, "reason": "unreachable", "trouble": "BUSY Redis is busy"},
        "lock 'orders' (token 17) was lost: no renewal was acknowledged before the lease ended; "
        "the last renewal failed: BUSY Redis is busy",
    ),
    (
        NotALockError("orders"),
        {"name": "orders"},
        "the key of 'orders' holds something else, which was left as it is; use another name, or a prefix of its own: "
        "LockConfig(prefix=...)",
    ),
    (
        ReplicationError("orders", 1, 2),
        {"name": "orders", "acks": 1, "wanted": 2},
        "lock 'orders' reached 1 of 2 replicas and was given back",
    ),
    (
        ReplicationError("orders", 1, 2, what="hold"),
        {"name": "orders"},
        "one more hold of lock 'orders' reached 1 of 2 replicas and was given back",
    ),
    (
        ReplicationError("orders", 1, 2, kind="semaphore", what="renewal"),
        {"name": "orders"},
        "the renewal of permit of 'orders' reached 1 of 2 replicas and does not count: its lease ends as before",
    ),
    (
        ClientClosedError("closed"),
        {"reason": "closed"},
        "this LockClient is closed, and does not start again: make a new one, and close it after its last use",
    ),
    (
        ClientClosedError("other loop"),
        {"reason": "other loop"},
        "this LockClient belongs to another event loop; each loop needs a client of its own, even that of a TestClient",
    ),
    (BackendError("acquire failed: why"), {}, "acquire failed: why"),
]

each_error = pytest.mark.parametrize(
    ("error", "data", "message"), ERRORS, ids=[type(row[0]).__name__ for row in ERRORS]
)


@each_error
def test_an_error_has_a_message_and_its_facts_as_attributes(
    error: AioLockError, data: dict[str, object], message: str
) -> None:
    assert str(error) == message
    assert {name: getattr(error, name) for name in data} == data


@each_error
def test_it_survives_pickling_with_its_notes(error: AioLockError, data: dict[str, object], message: str) -> None:
    original = copy.copy(error)
    original.add_note("a note")
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        restored = pickle.loads(pickle.dumps(original, protocol))
        assert type(restored) is type(error), protocol
        assert str(restored) == message
        assert {name: getattr(restored, name) for name in data} == data
        assert restored.args == error.args
        assert restored.__notes__ == ["a note"]


@each_error
def test_a_copy_is_equal_and_independent(error: AioLockError, data: dict[str, object], message: str) -> None:
    copied = copy.copy(error)
    copied.add_note("of the copy")
    assert str(copied) == message
    assert not hasattr(error, "__notes__")


def test_a_quorum_error_carries_the_answer_of_each_server() -> None:
    said = {"a:1": "no route", "b:2": "late"}
    error = pickle.loads(pickle.dumps(QuorumError("acquire", said)))
    assert error.errors == said
    assert str(error) == str(error.copy()) == "acquire failed: no majority of servers (a:1: no route; b:2: late)"
    assert error.copy().errors == said
    copied = error.copy()
    copied.errors.clear()
    assert error.errors == said, "each waiter has a copy of its own"
    assert str(QuorumError("acquire", {})) == "acquire failed: no majority of servers (no server answered)"


def test_a_remembered_failure_quotes_the_first_error() -> None:
    error = pickle.loads(pickle.dumps(OnceFailedError("invoice:42", "ValueError: no total")))
    assert (error.name, error.failure) == ("invoice:42", "ValueError: no total")
    assert "'invoice:42' has failed" in str(error)


def test_a_not_held_error_also_says_that_nobody_holds_the_lock() -> None:
    same = str(NotHeldError("orders", f"{HOLDER.client}:{HOLDER.owner}", HOLDER))
    assert "the server has it for this owner, but the owner has no lease by this kind of handle. Release it" in same
    assert "is not held by 'me': nobody holds it; it was released before, or never acquired." in str(
        NotHeldError("orders", "me", None)
    )


@pytest.mark.parametrize("reason", get_args(LossReason))
def test_every_reason_of_a_loss_has_its_words(reason: LossReason) -> None:
    others = {str(LeaseLostError("orders", 1, other)) for other in get_args(LossReason) if other != reason}
    assert str(LeaseLostError("orders", 1, reason)) not in others


@pytest.mark.parametrize(
    ("error", "bases"),
    [
        (LockTimeoutError, [AioLockError, TimeoutError]),
        (NotHeldError, [AioLockError, RuntimeError]),
        (LeaseLostError, [AioLockError]),
        (NotALockError, [AioLockError]),
        (ReplicationError, [AioLockError]),
        (QuorumError, [BackendError]),
        (OnceFailedError, [AioLockError]),
        (ClientClosedError, [AioLockError, RuntimeError]),
        (BackendError, [AioLockError]),
        (AioLockError, [Exception]),
    ],
)
def test_the_tree(error: type[Exception], bases: list[type[Exception]]) -> None:
    assert list(error.__bases__) == bases


def test_a_lock_timeout_is_caught_as_the_builtin_one() -> None:
    with pytest.raises(TimeoutError) as caught:
        raise LockTimeoutError("orders", 1)
    assert isinstance(caught.value, OSError), "the builtin TimeoutError is an OSError: its arguments are ours alone"
    assert caught.value.errno is None
