"""How a verb fails that cannot do what it was asked for: in words, with an exit code."""

from collections.abc import Iterator
from contextlib import contextmanager

from redis.exceptions import RedisError, ResponseError

from aiolock import AioLockError, BackendError
from aiolock._cli.doctor.advice import on_refusal
from aiolock._cli.doctor.probe import SilentError
from aiolock._cli.exit_codes import UNREACHABLE, USAGE, VerbError
from aiolock._redis.hints import in_words


@contextmanager
def told_in_words() -> Iterator[None]:
    """Whatever redis-py or aiolock raise of a server becomes a `VerbError`."""
    try:
        yield
    except SilentError as error:
        raise VerbError(f"Redis cannot be reached: {_sentence(error)} {error.advice}", UNREACHABLE) from error
    except ResponseError as error:
        raise VerbError(f"Redis refuses: {_sentence(error)} {on_refusal(error)}", UNREACHABLE) from error
    except (RedisError, OSError, TimeoutError, BackendError) as error:
        raise VerbError(f"Redis cannot be reached: {in_words(error)}", UNREACHABLE) from error
    except AioLockError as error:
        raise VerbError(str(error), USAGE) from error


def _sentence(error: Exception) -> str:
    """What it says, which ends as a sentence does."""
    said = str(error)
    return said if said.endswith((".", "?", "!")) else f"{said}."
