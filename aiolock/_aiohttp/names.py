"""The names of locks in aiohttp, from templates and functions of the request; and the names of what requests carry."""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, get_args

from aiohttp import web

from aiolock._web.key_template import filled, parameters_of

Names = str | Sequence[str]
Key = str | Callable[[web.Request], Names | Awaitable[Names]]

_ANSWERS = (web.StreamResponse, web.View)


def request_key(name: str) -> Any:
    """The key for something that a request carries: since 3.14 aiohttp has typed ones, and warns about others."""
    return web.RequestKey(name, object) if hasattr(web, "RequestKey") else f"aiolock.{name}"


def name_maker(key: Key) -> Callable[[web.Request], Names | Awaitable[Names]]:
    """The function that makes the name of a request's lock: *key* itself, or one that fills in the template *key*."""
    if not callable(key):
        return _filler(key)
    if _is_handler(key):
        raise TypeError(
            f"a bare @synchronized has no key: write @synchronized('order:{{order_id}}'), or give a function of the"
            f" request that returns the name, and not {key!r}"
        )
    return key


def check_caller(caller: object) -> None:
    """Raise if *caller* is not a function of a request; it may be the handler of a bare ``@idempotent``."""
    if caller is not None and (not callable(caller) or _is_handler(caller)):
        raise TypeError(f"write @idempotent(caller), with a function of the request or None, and not {caller!r}")


def _is_handler(key: Callable[..., object]) -> bool:
    """Whether *key* is a handler, by its annotations, which handlers often lack, or by its number of arguments."""
    try:
        signature = inspect.signature(key, eval_str=True)
    except Exception:
        # The key has no signature, or one with names that only type checkers know.
        return False
    try:
        signature.bind(None)
    except TypeError:
        return True
    made = signature.return_annotation
    return any(inspect.isclass(each) and issubclass(each, _ANSWERS) for each in (key, made, *get_args(made)))


def _filler(template: str) -> Callable[[web.Request], str]:
    """The function that fills *template* with a request's path; raises for a format that strings do not have."""
    parameters = parameters_of(template)
    filled(template, dict.fromkeys(parameters, ""))

    def name_of(request: web.Request) -> str:
        for missing in sorted(parameters - request.match_info.keys()):
            known = ", ".join(request.match_info) or "none"
            raise RuntimeError(f"{template!r}: the path has no variable {missing!r} (it has: {known})")
        return filled(template, request.match_info)

    return name_of
