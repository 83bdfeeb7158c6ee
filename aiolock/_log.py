"""The library's log: a handler of the application's that raises ends nothing of ours, and is told of by itself."""

import logging
import sys
import traceback
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any

logger = logging.getLogger("aiolock")


class _Log(logging.LoggerAdapter[logging.Logger]):
    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        return msg, kwargs

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """As `logging.Logger.log`."""
        try:
            super().log(level, msg, *args, **kwargs, stacklevel=2)
        except Exception:
            if logging.raiseExceptions and sys.stderr:  # As the handlers of the standard library do it.
                with suppress(OSError, ValueError):  # Nobody reads it any more, or it is closed.
                    traceback.print_exc()


log = _Log(logger, {})
