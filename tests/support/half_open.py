"""Connections that were closed while their other side read no more: asyncio cuts them off half a minute later."""

import asyncio
from asyncio.sslproto import SSLProtocol
from collections.abc import AsyncIterator
from typing import Any

import pytest


@pytest.fixture(autouse=True)
async def half_open_connections() -> AsyncIterator[None]:
    """Cuts them off when the test is over; its loop does not live for half a minute. None that is open is touched."""
    yield
    await cut_off()


async def cut_off() -> None:
    """Cut off what was closed and is still there."""
    for transport in _transports(asyncio.get_running_loop()):
        if _is_closed(transport):
            transport.abort()
    await asyncio.sleep(0)


def _transports(loop: Any) -> list[asyncio.Transport]:
    """Those that wait for something to read or to write, where the loop is asyncio's own."""
    selector = getattr(loop, "_selector", None)
    keys = [] if selector is None else list(selector.get_map().values())
    handles = [handle for key in keys if isinstance(key.data, tuple) for handle in key.data if handle is not None]
    owners = [getattr(handle._callback, "__self__", None) for handle in handles]
    return [owner for owner in owners if isinstance(owner, asyncio.Transport)]


def _is_closed(transport: asyncio.Transport) -> bool:
    """Whether whoever had it has closed it."""
    protocol: Any = transport.get_protocol()
    if isinstance(protocol, SSLProtocol) and protocol._app_transport is not None:
        return bool(protocol._app_transport.is_closing())
    return transport.is_closing()
