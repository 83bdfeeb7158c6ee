"""A server whose wall clock can be set, while it runs, as an operator or NTP does: its monotonic clock goes on."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aiolock._embedded_server import Server

_PLACES = ("*/faketime/libfaketime.so.1", "faketime/libfaketime.so.1")


class Clock:
    """The time of a server: libfaketime reads its offset from a file in *directory* at each question."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "clock"
        self.set(0)

    def set(self, ahead: float) -> None:
        """Put the server that many seconds ahead of all others from now on."""
        new = self.file.with_suffix(".new")
        new.write_text(f"{ahead:+.3f}\n")
        # The library never reads a file that is half written.
        new.replace(self.file)


@contextmanager
def with_a_clock(directory: Path) -> Iterator[tuple[Server, Clock]]:
    """A server and its clock; it is an embedded server, as the allocator of Debian's Redis fails with libfaketime."""
    library = next((place for each in _PLACES for place in Path("/usr/lib").glob(each)), None)
    if library is None:
        pytest.skip("no libfaketime, which Debian has in its package faketime")
    clock = Clock(directory)
    which = f"LD_PRELOAD={library} FAKETIME_TIMESTAMP_FILE={clock.file}"
    how = "FAKETIME_NO_CACHE=1 DONT_FAKE_MONOTONIC=1"
    program = directory / "server"
    program.write_text(f'#!/bin/sh\n{which} {how} exec {Server()._executable} "$@"\n')
    program.chmod(0o755)
    with Server(str(program)) as server:
        yield server, clock
