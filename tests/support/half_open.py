"""Connections that were closed while their other side had stopped reading: asyncio ends them half a minute later."""

import asyncio
from asyncio.sslproto import SSLProtocol
from collections.abc import AsyncIterator
from typing import Any

import pytest


@pytest.fixture(autouse=True)
async def half_open_connections() -> AsyncIterator[None]:
    """Ends such connections after the test, whose loop does not live for half a minute; open ones live on."""
    yield
    await cut_off()


async def cut_off() -> None:
    """End the closed connections that asyncio still keeps."""
    for transport in _transports(asyncio.get_running_loop()):
        if _is_closed(transport):
            transport.abort()
    await asyncio.sleep(0)


def _transports(loop: Any) -> list[asyncio.Transport]:
    """The transports that wait for reading or writing, if the loop is asyncio's own."""
    selector = getattr(loop, "_selector", None)
    keys = [] if selector is None else list(selector.get_map().values())
    handles = [handle for key in keys if isinstance(key.data, tuple) for handle in key.data if handle is not None]
    owners = [getattr(handle._callback, "__self__", None) for handle in handles]
    return [owner for owner in owners if isinstance(owner, asyncio.Transport)]


def _is_closed(transport: asyncio.Transport) -> bool:
    """Whether the user of the transport has closed it."""
    protocol: Any = transport.get_protocol()
    if isinstance(protocol, SSLProtocol) and protocol._app_transport is not None:
        return bool(protocol._app_transport.is_closing())
    return transport.is_closing()
