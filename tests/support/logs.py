"""Logging, which a test, or a framework that it runs, configures for the whole process."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple


class _State(NamedTuple):
    level: int
    propagates: bool
    is_disabled: bool
    handlers: tuple[logging.Handler, ...]
    filters: tuple[Any, ...]


@contextmanager
def as_before() -> Iterator[None]:
    """After the block every logger is as it was before, and new loggers have no settings of their own."""
    before = {name: _state(logger) for name, logger in _loggers().items()}
    disabled, raises = logging.root.manager.disable, logging.raiseExceptions
    try:
        yield
    finally:
        logging.disable(disabled)
        logging.raiseExceptions = raises
        for name, logger in _loggers().items():
            state = before.get(name, _State(logging.NOTSET, True, False, (), ()))
            logger.setLevel(state.level)
            logger.propagate, logger.disabled = state.propagates, state.is_disabled
            logger.handlers[:], logger.filters[:] = state.handlers, state.filters


def _loggers() -> dict[str, logging.Logger]:
    known = logging.root.manager.loggerDict.items()
    return {"": logging.root, **{name: each for name, each in known if isinstance(each, logging.Logger)}}


def _state(logger: logging.Logger) -> _State:
    return _State(logger.level, logger.propagate, logger.disabled, (*logger.handlers,), (*logger.filters,))
