"""What the tests of web services have in common."""

import gc
import warnings
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def sockets_of_http_clients() -> Iterator[None]:
    """
    Collects what HTTP clients leave behind, after the test that had them, where it is no error.

    One that is cancelled by the hundred while it connects may lose a socket. Those of aiolock, and of its tests, are
    streams, which have words of their own for that.
    """
    yield
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"unclosed (<socket\.socket|transport )", ResourceWarning)
        gc.collect()
