"""Logging is as before after a test has configured it."""

import logging
import logging.config

from tests.support.logs import as_before


def test_every_logger_is_as_before() -> None:
    root, ours, silent = logging.getLogger(), logging.getLogger("aiolock"), logging.getLogger("tests.silent")
    before = [[*each.handlers] for each in (root, ours, silent)], root.level, ours.level
    with as_before():
        logging.config.dictConfig(
            {
                "version": 1,
                "disable_existing_loggers": True,
                "handlers": {"null": {"class": "logging.NullHandler"}},
                "root": {"level": "DEBUG", "handlers": ["null"]},
                "loggers": {
                    name: {"level": "DEBUG", "handlers": ["null"], "propagate": False}
                    for name in ("aiolock", "tests.new")
                },
            }
        )
        ours.addFilter(lambda record: False)
        logging.disable(logging.CRITICAL)
        assert silent.disabled
    assert ([[*each.handlers] for each in (root, ours, silent)], root.level, ours.level) == before
    assert not silent.disabled
    assert not ours.filters
    assert ours.propagate
    assert ours.isEnabledFor(logging.WARNING)
    new = logging.getLogger("tests.new")
    assert (new.handlers, new.level, new.propagate) == ([], logging.NOTSET, True)
