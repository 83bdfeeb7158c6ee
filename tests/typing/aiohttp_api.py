"""The types of `aiolock.aiohttp` and `aiolock.testing`: checked by mypy and pyright, never run."""

from datetime import timedelta
from typing import assert_type

from aiohttp import web
from aiohttp.typedefs import Handler
from redis.asyncio import Redis

from aiolock import Lease, LockClient, LockConfig
from aiolock.aiohttp import LOCKS, idempotent, lease_from, locks_from, problems, setup, synchronized
from aiolock.testing import Server, delayed_renewals, failing_commands, lose


def applications(app: web.Application, redis: Redis) -> None:
    setup(app, "redis://localhost", config=LockConfig(lease=5))
    setup(app, redis)
    app.middlewares.append(problems)
    assert_type(app[LOCKS], LockClient)


@synchronized("order:{order_id}", wait=2, lease=timedelta(seconds=3), status=423)
async def pay(request: web.Request) -> web.Response:
    assert_type(lease_from(request), Lease)
    assert_type(locks_from(request), LockClient)
    return web.Response()


async def name_of(request: web.Request) -> str:
    return request.path


async def account_of(request: web.Request) -> int:
    return 7


@idempotent(account_of, keep=timedelta(hours=1), required=False)
async def order(request: web.Request) -> web.Response:
    return web.Response()


@synchronized(name_of, wait=None, release="behind")
async def stream(request: web.Request) -> web.StreamResponse:
    return web.StreamResponse()


@synchronized("report:{day}", of=lambda locks, name: locks.read_write_lock(name).read)
async def read(request: web.Request) -> web.Response:
    return web.Response()


@synchronized("seats", of=LockClient.counting_semaphore)
async def sit(request: web.Request) -> web.Response:
    return web.Response()


class View(web.View):
    @synchronized(lambda request: request.path)
    async def post(self) -> web.Response:
        return web.Response()


async def handlers(request: web.Request) -> None:
    assert_type(await pay(request), web.Response)
    assert_type(await stream(request), web.StreamResponse)
    assert_type(await View(request).post(), web.Response)
    handlers: list[Handler] = [pay, stream]
    assert handlers


async def refused(request: web.Request) -> None:
    await pay()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    idempotent(7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert_type(await order(request), web.Response)
    synchronized(7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    synchronized("a", of=LockClient.count_down_latch)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    synchronized("a", 2)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def faults(locks: LockClient, server: Server) -> None:
    assert_type(await lose(locks, "a"), None)
    await lose(locks, locks.multi("a", locks.semaphore("b", 4).taking(2)))
    await lose(locks, locks.read_write_lock("a"))
    await lose(locks, locks.counting_semaphore("a"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with delayed_renewals(locks), failing_commands(locks, most=None):
        server.restart()
    assert_type(server.url, str)
