"""
The coroutines of public verbs, which nobody can take for their answers by mistake.

With a plain coroutine, ``if lock.try_lock():`` without ``await`` would be true, and would run its body without the
lock.
"""

import asyncio
import inspect
import sys
from collections.abc import Callable, Coroutine, Generator
from functools import wraps
from types import CoroutineType, FunctionType
from typing import Any, Concatenate, Literal, NoReturn, ParamSpec, TypeVar, cast

from aiolock._words import tell_its_maker, unexpected

# The mark of coroutine functions for asyncio before Python 3.12; later versions have a function that sets it.
_MARK = "_is_coroutine"

S = TypeVar("S")
P = ParamSpec("P")
T = TypeVar("T")
C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., object])


class Answer(Coroutine[Any, Any, T]):
    """The coroutine of a verb of the object *asked*; `bool` of it raises until the coroutine runs."""

    __slots__ = ("__weakref__", "_asked", "_coroutine")

    def __init__(self, asked: Any, coroutine: Coroutine[Any, Any, T]) -> None:
        self._asked = asked
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, T]:
        return self._coroutine.__await__()

    def send(self, value: Any, /) -> Any:
        """Run the coroutine to its next wait."""
        return self._coroutine.send(value)

    def throw(self, kind: Any, error: Any = None, trace: Any = None, /) -> Any:
        """Raise an exception where the coroutine waits."""
        if error is None and trace is None:
            return self._coroutine.throw(kind)
        return self._coroutine.throw(kind, error, trace)

    def close(self) -> None:
        """End the coroutine where it waits."""
        self._coroutine.close()

    def __bool__(self) -> Literal[True]:
        # asyncio tests the coroutine of a task for truth when it formats the task.
        is_by_asyncio = str(sys._getframe(1).f_globals.get("__name__")).partition(".")[0] == "asyncio"
        coroutine = cast("CoroutineType[Any, Any, T]", self._coroutine)
        if is_by_asyncio or inspect.getcoroutinestate(coroutine) != inspect.CORO_CREATED:
            return True
        raise TypeError(
            f"{self.__qualname__}() was not awaited: it did nothing, and has no answer yet. Write `await` before it"
        )

    def __aenter__(self) -> NoReturn:
        self._coroutine.close()
        raise TypeError(
            f"`async with` needs the object itself, not {self.__qualname__}(): write `async with lock:`, or "
            "`async with lock.hold(wait=5):`"
        )

    # `async with` looks for `__aexit__` before it calls `__aenter__`.
    __aexit__ = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._coroutine, name)

    def __repr__(self) -> str:
        return repr(self._coroutine)


# Python's errors show this name, for example the error about `with lock.acquire()`.
Answer.__name__ = "coroutine"


class NoCondition:
    """An object that answers by a method: as a condition it would always be true."""

    __slots__ = ()

    def __bool__(self) -> NoReturn:
        raise TypeError(f"{self!r} is no condition: call its is_set()")


def marked(function: F) -> F:
    """Let mocks, and code that runs coroutine functions from threads, recognize *function* as a coroutine function."""
    if sys.version_info >= (3, 12):
        inspect.markcoroutinefunction(function)
    else:
        setattr(function, _MARK, getattr(asyncio.coroutines, _MARK))
    return function


def answered(
    verb: Callable[Concatenate[S, P], Coroutine[Any, Any, T]], answer: type[Answer[Any]] = Answer
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """The coroutine function *verb*, which returns an *answer* now; wrong arguments raise at the call."""
    parameters = inspect.signature(verb).parameters.values()
    takes_all = any(each.kind is each.VAR_KEYWORD for each in parameters)
    words = frozenset(each.name for each in parameters)

    @wraps(verb)
    def called(asked: S, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        if kwargs and not (takes_all or words.issuperset(kwargs)):
            raise unexpected(verb.__name__, [word for word in kwargs if word not in words])
        return answer(asked, verb(asked, *args, **kwargs))

    return cast("Callable[Concatenate[S, P], Coroutine[Any, Any, T]]", marked(called))


def answering(owner: C) -> C:
    """
    Let the public coroutine functions of the primitive *owner* return an `Answer`.

    Type checkers do not see the change: for them these are coroutine functions.
    """
    for name, verb in list(vars(owner).items()):
        if (
            not name.startswith("_")
            and isinstance(verb, FunctionType)
            and verb.__code__.co_flags & inspect.CO_COROUTINE
        ):
            setattr(owner, name, answered(verb))
    tell_its_maker(owner, owner.__name__)
    return owner
