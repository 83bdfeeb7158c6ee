"""Names of locks that somebody typed."""

from aiolock._cli.exit_codes import USAGE, VerbError
from aiolock._keys import LockKeys
from aiolock._types import text


def checked(name: str) -> str:
    """*name*, if it can be that of a lock."""
    try:
        LockKeys.of(text(name, "name"), "")
    except ValueError as error:
        raise VerbError(str(error), USAGE) from error
    return name
