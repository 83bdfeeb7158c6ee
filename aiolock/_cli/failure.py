"""The failure of a verb: in words, with an exit code."""

import json
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from redis.exceptions import RedisError, ResponseError

from aiolock import AioLockError, BackendError, LeaseLostError, NotALockError
from aiolock._cli.advice import on_refusal
from aiolock._cli.output import write_error
from aiolock._cli.probe import SilentError
from aiolock._cli.verb import LOST, UNREACHABLE, USAGE, VerbError
from aiolock._redis.error_replies import words_of
from aiolock._redis.hints import in_words
from aiolock._types import quoted


@contextmanager
def told_in_words() -> Iterator[None]:
    """Turn errors of redis-py and of aiolock about a server or a lock into a `VerbError`."""
    try:
        yield
    except SilentError as error:
        raise VerbError(f"Redis cannot be reached: {_sentence(str(error))} {error.advice}", UNREACHABLE) from error
    except ResponseError as error:
        raise VerbError(f"Redis refuses: {_sentence(words_of(error))} {on_refusal(error)}", UNREACHABLE) from error
    except (RedisError, OSError) as error:
        raise VerbError(f"Redis cannot be reached: {in_words(error)}", UNREACHABLE) from error
    except NotALockError as error:
        # The error's own text advises a setting of the library.
        words = f"the key of {quoted(error.name)} holds something else, which was left as it is; use another name"
        raise VerbError(words, USAGE) from error
    except BackendError as error:
        # Its text says whether the server refused or did not answer.
        raise VerbError(str(error), UNREACHABLE) from error
    except AioLockError as error:
        raise VerbError(str(error), LOST if isinstance(error, LeaseLostError) else USAGE) from error


def _sentence(said: str) -> str:
    """The text *said*, ended like a sentence."""
    return said if said.endswith((".", "?", "!")) else f"{said}."


@contextmanager
def refused_as_usage() -> Iterator[None]:
    """Turn aiolock's refusal of what the user gave, such as a name or a ticket, into a `VerbError`."""
    try:
        yield
    except ValueError as error:
        raise VerbError(str(error), USAGE) from error


def told_as_json(parsed: Namespace, run: Callable[[], int], **more: object) -> int:
    """The exit code of *run*; with ``--json``, its failure is a JSON object, with *more* in it, on standard error."""
    try:
        return run()
    except VerbError as error:
        if not parsed.json:
            raise
        write_error(json.dumps({**more, "event": "failed", "words": str(error)}))
        return error.code
