"""The words of errors: their greatest length, and aiolock's counterparts of redis-py's arguments and methods."""

from collections.abc import Callable, Iterable
from inspect import unwrap
from types import FunctionType
from typing import NoReturn, TypedDict, TypeVar

_KEYWORDS = {
    "timeout": "the time to wait is `wait=`, as in lock.hold(wait=5); the time to hold a lock is `lease=`, and without "
    "one it is renewed",
    "blocking": "lock.acquire() waits, and lock.try_acquire() asks once",
    "blocking_timeout": "write lock.try_acquire(wait=5) or lock.hold(wait=5)",
    "wait": "acquire() waits as long as it takes; write lock.try_acquire(wait=5) or lock.hold(wait=5)",
    "lease": "give it to the call that acquires, such as lock.hold(lease=30); a counting semaphore has no leases",
    "value": "the number of permits is `permits=`",
    "sleep": "leave it out: a message wakes the waiters",
    "thread_local": "leave it out: the task or thread that acquires a lock owns it. To release it in "
    "another one, use a named owner: locks.lock(name, owner='job-17')",
    "raise_on_release_error": "leave it out: an error of the release never hides an error of the body",
    "lock_class": "leave it out: choose the kind of lock by the method: locks.lock, locks.fair_lock and so on",
    "token": "the server makes the tokens: read `lease.token`; only force_release() of a lock compares one",
}
_ATTRIBUTES = {
    "extend": "await lease.renew(30), which lets the lock live for 30 seconds from now",
    "reacquire": "await lease.renew()",
    "owned": "await lock.held()",
    "unlock": "await lock.release()",
    "is_locked": "await lock.locked()",
    "local": "lease.token",
    "token": "lease.token, or lease.tokens[name] of a multi lock",
    "name": "lease.leases, which has the lease of each lock by its name",
    "renew": "await lease.renew()",
    "try_lock": "try_acquire, which does the same and which locks have, too",
}
EACH_AN_OWNER = "each task, and each thread, is an owner of its own"
# The longest text of a server or another library in a message.
_MOST_CHARACTERS = 300

C = TypeVar("C", bound=type)


def shortened(text: str) -> str:
    """The *text* of a server or of another library, cut to the length that a message may contain."""
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 1]}…"


def shown_as(name: str) -> Callable[[C], C]:
    """
    Let Python's errors about the public methods name the class *name* instead of the class that defines them.

    For a base class that users do not know: they see its methods in another class.
    """

    def rename(base: C) -> C:
        for method in vars(base).values():
            if isinstance(method, FunctionType) and not method.__name__.startswith("_"):
                for each in (method, unwrap(method)):
                    each.__qualname__ = f"{name}.{method.__name__}"
        tell_its_maker(base, name)
        return base

    return rename


def tell_its_maker(owner: type, name: str) -> None:
    """
    Let Python's error about wrong arguments of the constructor of *owner*, a *name*, say what to call instead.

    The constructor takes its parts by keyword, so that positional arguments, as for redis-py's lock, are wrong.
    """
    if isinstance(constructor := vars(owner).get("__init__"), FunctionType):
        made = "call a method of LockClient instead, such as LockClient(redis).lock('orders')"
        constructor.__qualname__ = f"{made}: {name}.__init__"


class NoMore(TypedDict):
    """Keyword arguments that type checkers reject for a function; at run time the function rejects them itself."""


def unexpected(called: str, words: Iterable[str]) -> TypeError:
    """The error for a call with unknown keyword arguments, *words*."""
    word = next(iter(words))
    instead = _KEYWORDS.get(word)
    return TypeError(f"{called}() got an unexpected keyword argument {word!r}" + (f": {instead}" if instead else ""))


def refuse_attribute(owner: object, name: str) -> NoReturn:
    """
    Raise for an attribute that *owner* does not have; for a name of redis-py's lock, the error says what to write.

    A class uses it as its ``__getattr__``, hidden from type checkers and editors: these report an unknown attribute.
    """
    _refuse_attribute(owner, name, _ATTRIBUTES.get(name))


def refuse_attribute_in_threads(owner: object, name: str) -> NoReturn:
    """As `refuse_attribute`, for a class whose methods are not awaited."""
    _refuse_attribute(owner, name, _ATTRIBUTES.get(name, "").replace("await ", ""))


def _refuse_attribute(owner: object, name: str, instead: str | None) -> NoReturn:
    words = f"{type(owner).__name__!r} object has no attribute {name!r}" + (f": write {instead}" if instead else "")
    raise AttributeError(words, name=name, obj=owner)
