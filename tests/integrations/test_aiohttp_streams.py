"""Responses that the handler sends itself, and clients that disconnect."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import ClientPayloadError, ClientSession, WSCloseCode, WSMsgType, WSServerHandshakeError, web

from aiolock import LockClient
from aiolock.aiohttp import LOCKS, locks_from, setup, synchronized
from aiolock.testing import lose
from tests.support.observe import until
from tests.support.serving import serving


@pytest.fixture
def app(locks: LockClient) -> web.Application:
    """An application that has the tests' client."""
    app = web.Application()
    setup(app, "redis://127.0.0.1:1")
    app[LOCKS] = locks
    return app


async def forever() -> None:
    await asyncio.get_running_loop().create_future()


# Streams.


@synchronized("a")
async def stream(request: web.Request) -> web.StreamResponse:
    """Send a part, and go on when `go` is set."""
    response = web.StreamResponse()
    if "length" in request.query:
        response.content_length = 10
    await response.prepare(request)
    await response.write(b"12345")
    await request.app[GO].wait()
    await response.write(b"67890")
    return response


GO = web.AppKey("GO", asyncio.Event)


async def test_a_stream_is_under_the_lock_to_its_end(app: web.Application, locks: LockClient) -> None:
    app[GO] = asyncio.Event()
    app.router.add_get("/", stream)
    async with serving(app) as session, session.get("/") as response:
        assert await response.content.readexactly(5) == b"12345"
        assert await locks.lock("a").locked()
        app[GO].set()
        assert await response.read() == b"67890"
    await until(lambda: locks.statistics().held == 0)


@pytest.mark.parametrize("path", ["/", "/?length"])
async def test_a_stream_that_loses_its_lock_is_cut_off(app: web.Application, locks: LockClient, path: str) -> None:
    app[GO] = asyncio.Event()
    app.router.add_get("/", stream)
    async with serving(app) as session, session.get(path) as response:
        assert await response.content.readexactly(5) == b"12345"
        await lose(locks, "a")
        with pytest.raises(ClientPayloadError):
            await response.read()


async def test_a_stream_that_an_error_of_another_lock_ends_is_cut_off(app: web.Application, locks: LockClient) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"12345")
        async with locks_from(request).lock("b"):
            await forever()
        return response

    app.router.add_get("/", handler)
    async with serving(app) as session, session.get("/") as response:
        await response.content.readexactly(5)
        await until(lambda: locks.statistics().held == 1)
        await lose(locks, "b")
        with pytest.raises(ClientPayloadError):
            await response.read()


async def test_a_client_that_asked_whether_to_go_on_is_told_as_any_other(
    app: web.Application, locks: LockClient
) -> None:
    @synchronized("a")
    async def handler(request: web.Request) -> web.Response:
        await request.read()
        await forever()
        return web.Response()

    app.router.add_post("/", handler)
    async with serving(app) as session:
        request = asyncio.create_task(told(session, expect100=True))
        await until(lambda: locks.statistics().held == 1)
        await lose(locks, "a")
        assert await request == 503


async def told(session: ClientSession, *, expect100: bool = False) -> int:
    async with session.post("/", data=b"body", expect100=expect100) as response:
        return response.status


async def test_a_body_that_the_handler_only_returns_is_sent_without_the_lock(
    app: web.Application, locks: LockClient
) -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b"locked" if await locks.lock("a").locked() else b"free"

    @synchronized("a")
    async def handler(request: web.Request) -> web.Response:
        return web.Response(body=body())

    app.router.add_get("/", handler)
    async with serving(app) as session, session.get("/") as response:
        assert await response.read() == b"free"


# WebSockets.


@synchronized("a")
async def talk(request: web.Request) -> web.WebSocketResponse:
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    try:
        async for message in socket:
            await socket.send_str(message.data)
    except asyncio.CancelledError:
        if "polite" in request.query:
            await socket.close(code=WSCloseCode.TRY_AGAIN_LATER)
        raise
    return socket


async def test_a_websocket_is_under_the_lock_until_it_is_closed(app: web.Application, locks: LockClient) -> None:
    app.router.add_get("/", talk)
    async with serving(app) as session:
        async with session.ws_connect("/") as socket:
            await socket.send_str("hello")
            assert await socket.receive_str() == "hello"
            with pytest.raises(WSServerHandshakeError) as refused:
                await session.ws_connect("/")
            assert refused.value.status == 409
        await until(lambda: locks.statistics().held == 0)
        async with session.ws_connect("/") as socket:
            await socket.send_str("again")
            assert await socket.receive_str() == "again"


@pytest.mark.parametrize(
    ("path", "code"), [("/", WSCloseCode.ABNORMAL_CLOSURE), ("/?polite", WSCloseCode.TRY_AGAIN_LATER)]
)
async def test_a_websocket_that_loses_its_lock_is_closed(
    app: web.Application, locks: LockClient, path: str, code: int
) -> None:
    app.router.add_get("/", talk)
    async with serving(app) as session, session.ws_connect(path) as socket:
        await until(lambda: locks.statistics().held == 1)
        await lose(locks, "a")
        message = await socket.receive()
        assert message.type in (WSMsgType.CLOSE, WSMsgType.CLOSED)
        assert socket.close_code == code


# Clients that disconnect.


@pytest.mark.parametrize("cancelling", [True, False])
async def test_a_client_that_disconnects_while_its_handler_has_the_lock(
    app: web.Application, locks: LockClient, cancelling: bool
) -> None:
    done: list[bool] = []
    app[GO] = asyncio.Event()

    @synchronized("a")
    async def handler(request: web.Request) -> web.Response:
        try:
            await request.app[GO].wait()
            done.append(True)
        except asyncio.CancelledError:
            done.append(False)
            raise
        return web.Response()

    app.router.add_post("/", handler)
    async with serving(app, handler_cancellation=cancelling) as session:
        await disconnect_when(session, locks, held=1)
        if not cancelling:
            # The server has seen the disconnect by now.
            async with session.post("/") as response:
                assert response.status == 409
            app[GO].set()
        await until(lambda: locks.statistics().held == 0)
    assert done == [not cancelling]
    assert not await locks.lock("a").locked()


@pytest.mark.parametrize("cancelling", [True, False])
async def test_a_client_that_disconnects_while_its_handler_waits(
    app: web.Application, locks: LockClient, cancelling: bool
) -> None:
    ran: list[web.Request] = []

    @synchronized("a", wait=60)
    async def handler(request: web.Request) -> web.Response:
        ran.append(request)
        return web.Response()

    app.router.add_post("/", handler)
    async with serving(app, handler_cancellation=cancelling) as session:
        async with locks.lock("a"):
            await disconnect_when(session, locks, parked=1)
            if cancelling:
                await until(lambda: locks.statistics().parked == 0)
        if not cancelling:
            await until(lambda: len(ran) == 1)
        async with session.post("/") as response:
            assert response.status == 200
    assert len(ran) == (1 if cancelling else 2)


async def disconnect_when(session: ClientSession, locks: LockClient, *, held: int = 0, parked: int = 0) -> None:
    """Ask for ``/``, and disconnect when that many locks are held and waited for, not counting those held by now."""
    wanted = locks.statistics().held + held, parked
    request = asyncio.create_task(told(session))
    await until(lambda: (locks.statistics().held, locks.statistics().parked) == wanted)
    request.cancel()
    await asyncio.wait([request])


async def test_a_stream_whose_client_disconnects_frees_its_lock(app: web.Application, locks: LockClient) -> None:
    @synchronized("a")
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"more")
            await asyncio.sleep(0.001)

    app.router.add_get("/", endless)
    async with serving(app) as session:
        async with session.get("/") as response:
            await response.content.readexactly(4)
        await until(lambda: locks.statistics().held == 0)
