"""Checks of users' functions: a function that returns before its work is done would go on without the lock."""

import asyncio
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_UNLIKE = (inspect.iscoroutinefunction, inspect.isasyncgenfunction, inspect.isgeneratorfunction)


def check_plain(function: object, what: str) -> None:
    """Raise `TypeError` unless *function* can be called, and does its work in the call; errors call it *what*."""
    if not callable(function) or any(is_one(function) for is_one in _UNLIKE):
        raise TypeError(
            f"{what} must be a function that returns when it is done, not {function!r}; for a coroutine function use "
            "aiolock.LockClient"
        )


def called(function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """The result of *function*; `TypeError` if the result is a coroutine, which is closed."""
    result = function(*args, **kwargs)
    if asyncio.iscoroutine(result):
        result.close()
        raise TypeError(
            f"{function!r} must be a function that returns when it is done, but it returned a coroutine; use "
            "aiolock.LockClient for that"
        )
    return result
