"""A time without the garbage collector."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """In this block, Python frees only what nothing refers to."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
