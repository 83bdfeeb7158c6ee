"""The blocking surface is the asynchronous one: each class, each verb, each parameter, and nothing is left out."""

import inspect
from dataclasses import is_dataclass
from typing import Any

import pytest

import aiolock
from aiolock import blocking

# The names that only the asynchronous class has, and the reasons.
LEFT_OUT = {
    # Threads call `close`.
    "LockClient": {"aclose"},
    # A thread cannot be cancelled: it works in its block, and asks for a loss.
    "Term": {"run", "start"},
}
ADDED = {
    "LockClient": {"close"},
    # The callback replaces the cancellation of a body.
    "Lease": {"on_loss"},
    "MultiLease": {"on_loss"},
    # `wait` replaces `await`.
    "Loss": {"wait"},
    "MultiLoss": {"wait"},
}
# These verbs take functions and blocking objects where the asynchronous ones take coroutine functions and objects.
OF_ITS_OWN = {
    ("Leader", "run"),
    ("LockClient", "adopt"),
    ("LockClient", "from_url"),
    ("LockClient", "multi"),
    ("LockClient", "redlock"),
    ("LockClient", "synchronized"),
    ("Lease", "check"),
    ("Loss", "is_set"),
    ("MultiLease", "check"),
    ("MultiLoss", "is_set"),
    ("Once", "run"),
    ("Semaphore", "release"),
    ("Semaphore", "renew"),
    ("Semaphore", "taking"),
    ("CountingSemaphore", "taking"),
}


def has_a_partner(name: str) -> bool:
    """Whether threads have a class of their own for this one: they share the records, events and errors."""
    owner = getattr(aiolock, name)
    if not inspect.isclass(owner) or owner.__module__ != "aiolock" or is_dataclass(owner):
        return False
    # Threads need no `Adoption`: a thread that adopts waits at once, and gets the lease, which it can enter.
    return not issubclass(owner, Exception) and owner not in (aiolock.Telemetry, aiolock.Adoption)


PAIRS = {name.removeprefix("Async"): getattr(aiolock, name) for name in aiolock.__all__ if has_a_partner(name)}


def members(owner: type) -> set[str]:
    return {name for name in dir(owner) if not name.startswith("_")} | set(getattr(owner, "__annotations__", ()))


def public(names: set[str]) -> set[str]:
    return {name for name in names if not name.startswith("_")}


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    """The parameters, without `self` or `cls`, and without `unknown`, which takes the arguments that a call refuses."""
    found = list(inspect.signature(function).parameters.values())
    return [(each.name, each.kind, each.default) for each in found if each.name not in {"self", "cls", "unknown"}]


def test_each_class_has_its_partner_and_no_other_is_public() -> None:
    assert sorted(PAIRS) == blocking.__all__


@pytest.mark.parametrize("name", PAIRS)
def test_the_members_are_the_same(name: str) -> None:
    expected = members(PAIRS[name]) - LEFT_OUT.get(name, set()) | ADDED.get(name, set())
    assert public(members(getattr(blocking, name))) == public(expected)


@pytest.mark.parametrize("name", PAIRS)
def test_each_verb_is_made_of_its_own_namesake(name: str) -> None:
    """A verb that is not made of its namesake takes the same parameters."""
    for verb in public(members(PAIRS[name])) - LEFT_OUT.get(name, set()):
        found, source = getattr(getattr(blocking, name), verb), getattr(PAIRS[name], verb, None)
        if inspect.isfunction(source) or inspect.ismethod(source):
            assert not inspect.iscoroutinefunction(found), verb
            if (name, verb) in OF_ITS_OWN:
                assert parameters(found) == parameters(source), verb
            else:
                assert found.__wrapped__ is source, verb


@pytest.mark.parametrize("name", PAIRS)
def test_a_class_with_blocks_has_them_in_threads_too(name: str) -> None:
    source, found = PAIRS[name], getattr(blocking, name)
    assert hasattr(found, "__enter__") == hasattr(source, "__aenter__")
    assert hasattr(found, "__iter__") == hasattr(source, "__aiter__")


def test_each_class_and_verb_is_documented() -> None:
    bare = [
        f"{name}.{member}"
        for name in blocking.__all__
        for member in ("__class__", *public(members(getattr(blocking, name))))
        if not inspect.getdoc(inspect.getattr_static(getattr(blocking, name), member, object))
    ]
    assert bare == []
