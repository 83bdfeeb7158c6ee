"""Ports that nobody else gets."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def reserved_port() -> Iterator[int]:
    """A port on which servers of ours may listen, one at a time, and nobody else."""
    with socket.socket() as reservation:
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # As they do: it lets them in.
        reservation.bind(("127.0.0.1", 0))
        yield int(reservation.getsockname()[1])
