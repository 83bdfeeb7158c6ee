"""The library's log: it reports an exception of one of the application's handlers, and does not raise it."""

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
        """The same as `logging.Logger.log`."""
        try:
            super().log(level, msg, *args, **kwargs, stacklevel=2)
        except Exception:
            # The handlers of the standard library have the same condition.
            if logging.raiseExceptions and sys.stderr:
                # Standard error may be closed, or its reader may be gone.
                with suppress(OSError, ValueError):
                    traceback.print_exc()


log = _Log(logger, {})
