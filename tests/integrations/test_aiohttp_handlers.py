"""`aiolock.aiohttp.synchronized`: handlers of every kind, the names of the locks, and the answers to clients."""

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any

import pytest
from aiohttp import ClientResponse, ClientSession, web
from aiohttp.test_utils import make_mocked_request
from redis.asyncio import Redis

from aiolock import LockClient, LockConfig, LockTimeoutError
from aiolock._embedded_server import Server
from aiolock._scripts import RELEASE_CLEAN
from aiolock._web import problem as _problem
from aiolock.aiohttp import LOCKS, LockProblem, lease_from, leases_from, locks_from, problems, setup, synchronized
from aiolock.testing import failing_commands, lose
from tests.support.holding import client_behind, client_of_another_loop
from tests.support.inside import session_of
from tests.support.makers import MAKERS, is_taken, seen_as
from tests.support.observe import answered, until
from tests.support.proxy import Proxy, Rule, script, withhold_reply
from tests.support.serving import serving

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@pytest.fixture
def app(locks: LockClient) -> web.Application:
    """An application that has the tests' client."""
    app = web.Application()
    setup(app, "redis://127.0.0.1:1")
    app[LOCKS] = locks
    return app


def post(app: web.Application, path: str, handler: Any) -> None:
    app.router.add_route("POST", path, handler)


async def is_problem(response: ClientResponse, status: int) -> bool:
    document: dict[str, object] = await response.json(content_type="application/problem+json")
    assert document.keys() == {"type", "title", "status", "detail"}
    assert int(response.headers["Retry-After"]) >= 1
    return (response.status, document["status"]) == (status, status)


async def held(request: web.Request) -> web.Response:
    """Answers with the name of the lock, which is held."""
    lease = lease_from(request)
    lease.check()
    assert await locks_from(request).lock(lease.name).held()
    return web.Response(text=lease.name)


# Kinds of handlers.


class OrderView(web.View):
    @synchronized("order:{order_id}")
    async def post(self) -> web.Response:
        return await held(self.request)


class Orders:
    @synchronized("order:{order_id}")
    async def pay(self, request: web.Request) -> web.Response:
        return await held(request)


@synchronized("order:{order_id}")
async def pay_by(method: str, request: web.Request, *, currency: str) -> web.Response:
    assert (method, currency) == ("card", "eur")
    return await held(request)


@pytest.mark.parametrize(
    "handler",
    [
        pytest.param(synchronized("order:{order_id}")(held), id="function"),
        pytest.param(OrderView, id="view"),
        pytest.param(Orders().pay, id="method"),
        pytest.param(functools.partial(pay_by, "card", currency="eur"), id="partial"),
    ],
)
async def test_every_kind_of_handler_runs_under_its_lock(app: web.Application, locks: LockClient, handler: Any) -> None:
    post(app, "/orders/{order_id}", handler)
    async with serving(app) as session:
        async with session.post("/orders/7") as response:
            assert (response.status, await response.text()) == (200, "order:7")
        assert not await locks.lock("order:7").locked()
        async with locks.lock("order:7"), session.post("/orders/7") as response:
            assert await is_problem(response, 409)


async def test_a_middleware_may_be_decorated_as_well(app: web.Application, locks: LockClient) -> None:
    @web.middleware
    @synchronized("all")
    async def one_at_a_time(request: web.Request, handler: Handler) -> web.StreamResponse:
        return await handler(request)

    app.middlewares.append(one_at_a_time)
    post(app, "/", held)
    async with serving(app) as session:
        async with session.post("/") as response:
            assert await response.text() == "all"
        async with locks.lock("all"), session.post("/") as response:
            assert await is_problem(response, 409)


async def test_a_unit_test_with_a_mocked_request_gets_the_error_of_a_busy_lock(
    app: web.Application, locks: LockClient
) -> None:
    handler = synchronized("order:{id}")(held)
    request = make_mocked_request("GET", "/orders/7", app=app, match_info={"id": "7"})
    assert (await handler(request)).text == "order:7"
    async with locks.lock("order:7", owner="another request"):
        with pytest.raises(LockProblem) as busy:
            await handler(request)
    assert busy.value.status == 409


def test_the_application_comes_first() -> None:
    with pytest.raises(TypeError, match=r"setup needs the application first, as in setup\(app, redis\), not str$"):
        setup("redis://:secret@localhost", web.Application())  # type: ignore[arg-type]


async def test_a_middleware_that_takes_a_lock_by_hand_comes_after_setup(
    app: web.Application, locks: LockClient
) -> None:
    @web.middleware
    async def one_at_a_time(request: web.Request, handler: Handler) -> web.StreamResponse:
        async with locks_from(request).lock("all").hold(wait=0):
            return await handler(request)

    async def handler(request: web.Request) -> web.Response:
        return web.Response()

    app.middlewares.append(one_at_a_time)
    post(app, "/", handler)
    async with serving(app) as session, locks.lock("all"), session.post("/") as response:
        assert await is_problem(response, 409)


async def test_the_handler_keeps_its_papers() -> None:
    decorated = synchronized("a")(held)
    assert asyncio.iscoroutinefunction(decorated)
    assert (decorated.__name__, decorated.__doc__) == (held.__name__, held.__doc__)


# Names of locks.


async def by_body(request: web.Request) -> str:
    return f"order:{(await request.json())['order_id']}"


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("order:{order_id}", "order:07"),
        ("{shop}/{order_id:>4}", "north/  07"),
        ("every order", "every order"),
        (lambda request: f"order:{int(request.match_info['order_id'])}", "order:7"),
        (by_body, "order:42"),
    ],
    ids=["template", "format", "constant", "function", "coroutine function"],
)
async def test_the_key_is_a_template_or_a_function_of_the_request(app: web.Application, key: Any, name: str) -> None:
    post(app, "/{shop}/orders/{order_id}", synchronized(key)(held))
    async with serving(app) as session, session.post("/north/orders/07", json={"order_id": 42}) as response:
        assert await response.text() == name


def both_names(request: web.Request) -> list[str]:
    return [f"account:{request.match_info[end]}" for end in ("source", "target")]


@pytest.mark.parametrize(
    "keys",
    [("account:{source}", "account:{target}"), ("account:{source}", lambda r: both_names(r)[1]), (both_names,)],
    ids=["templates", "a template and a function", "a function"],
)
async def test_several_names_are_one_multi_lock(app: web.Application, locks: LockClient, keys: tuple[Any, ...]) -> None:
    together = 0

    @synchronized(*keys, wait=10)
    async def transfer(request: web.Request) -> web.Response:
        nonlocal together
        together += 1
        assert together == 1
        await asyncio.sleep(0)
        leases_from(request).check()
        with pytest.raises(RuntimeError, match="several names"):
            lease_from(request)
        together -= 1
        if request.match_info["target"] == "3":
            await lose(locks, "account:3")
            await asyncio.sleep(10)
        return web.Response(text=" ".join(leases_from(request).tokens))

    post(app, "/{source}/{target}", transfer)
    async with serving(app) as client:
        answers = await asyncio.gather(*(client.post(path) for path in ("/1/2", "/2/1", "/1/1")))
        assert [await answer.text() for answer in answers] == ["account:1 account:2"] * 2 + ["account:1"]
        assert await is_problem(await client.post("/1/3"), 503)
    assert not await locks.multi("account:1", "account:2", "account:3").locked()


@pytest.mark.parametrize("kind", MAKERS)
async def test_a_handler_may_run_under_another_kind_than_a_lock(
    app: web.Application, kind: str, locks: LockClient, other: LockClient
) -> None:
    of, obstacle = MAKERS[kind]

    @synchronized("report:{day}", of=of)
    async def handler(request: web.Request) -> web.Response:
        name = f"report:{request.match_info['day']}"
        granted = None if kind == "counted" else leases_from(request) if kind == "multi" else lease_from(request)
        return web.json_response(seen_as(kind, granted, name) and await is_taken(locks, kind, name))

    post(app, "/{day}", handler)
    async with serving(app) as session:
        async with session.post("/7") as response:
            assert await response.json() is True
        assert not await is_taken(locks, kind, "report:7")
        async with obstacle(other, "report:7"), session.post("/7") as response:
            assert await is_problem(response, 409)


async def test_a_counting_semaphore_leaves_the_outer_lease(app: web.Application) -> None:
    @synchronized("seats", of=lambda locks, name: locks.counting_semaphore(name, 3))
    async def sit(request: web.Request) -> web.Response:
        return web.Response(text=lease_from(request).name)

    post(app, "/alone", sit)
    post(app, "/locked", synchronized("order")(sit))
    async with serving(app) as session:
        async with session.post("/locked") as response:
            assert await response.text() == "order"
        async with session.post("/alone") as response:
            assert response.status == 500


async def test_a_maker_of_no_lock_is_a_mistake_in_the_service(app: web.Application, locks: LockClient) -> None:
    @synchronized("{name}", of=lambda locks, name: locks.counting_semaphore(name, -1))
    async def handler(request: web.Request) -> web.Response:
        return web.Response()

    post(app, "/{name}", handler)
    async with serving(app) as session:
        async with session.post("/aiolock_token:a") as response:
            assert response.status == 400
        async with session.post("/a") as response:
            assert response.status == 500
    with pytest.raises(TypeError, match="of must be a function"):
        synchronized("a", of=locks.counting_semaphore("a", 4))  # type: ignore[arg-type]


async def test_the_lease_of_one_name_is_none_of_several(app: web.Application) -> None:
    @synchronized("order:{order_id}")
    async def handler(request: web.Request) -> web.Response:
        with pytest.raises(RuntimeError, match="one name"):
            leases_from(request)
        return web.Response()

    async def bare(request: web.Request) -> web.Response:
        with pytest.raises(RuntimeError, match="not decorated"):
            leases_from(request)
        return web.Response()

    post(app, "/{order_id}", handler)
    post(app, "/", bare)
    async with serving(app) as client:
        assert (await client.post("/7")).status == 200
        assert (await client.post("/")).status == 200


async def test_an_exception_of_the_key_function_is_the_answer(app: web.Application, locks: LockClient) -> None:
    def of_user(request: web.Request) -> str:
        raise web.HTTPUnauthorized

    post(app, "/", synchronized(of_user)(held))
    async with serving(app) as session, session.post("/") as response:
        assert response.status == 401
    assert locks.statistics().commands == 0


@pytest.mark.parametrize(
    ("name", "status"),
    [("", 400), ("aiolock_token:{order}", 400), ("\ud800", 400), ("{order}:timeout", 400), ("x" * 1025, 400), (7, 500)],
    ids=["empty", "ours", "surrogate", "theirs", "long", "no text"],
)
async def test_a_request_that_makes_a_name_which_is_refused_is_a_bad_one(
    app: web.Application, name: Any, status: int
) -> None:
    post(app, "/", synchronized(lambda request: name)(held))
    async with serving(app) as session, session.post("/") as response:
        assert response.status == status
        assert "aiolock" not in await response.text()


async def test_a_variable_that_the_path_does_not_have_is_named(
    app: web.Application, caplog: pytest.LogCaptureFixture
) -> None:
    post(app, "/{id}", synchronized("order:{order_id}")(held))
    async with serving(app) as session, session.post("/7") as response:
        assert response.status == 500
    assert "the path has no variable 'order_id' (it has: id)" in caplog.text


async def test_a_variable_without_a_text_that_a_middleware_puts_into_the_path_is_refused(
    app: web.Application, locks: LockClient, caplog: pytest.LogCaptureFixture
) -> None:
    @web.middleware
    async def look_up(request: web.Request, handler: Handler) -> web.StreamResponse:
        request.match_info["order"] = object()  # type: ignore[assignment]
        return await handler(request)

    app.middlewares.append(look_up)
    post(app, "/{order}", synchronized("order:{order}")(held))
    async with serving(app) as session, session.post("/7") as response:
        assert response.status == 500
    assert "the name 'order:{order}' has the address of an object in {order}" in caplog.text
    assert locks.statistics().commands == 0


def test_a_format_that_strings_do_not_have_is_named() -> None:
    with pytest.raises(ValueError, match=r"^the name 'order:{order:d}' cannot be made: {order} raises ValueError"):
        synchronized("order:{order:d}")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"key": ""}, ValueError),
        ({"key": 7}, TypeError),
        ({"key": "order:{}"}, ValueError),
        ({"key": "order:{0}"}, ValueError),
        ({"key": "order:{order.id}"}, ValueError),
        ({"key": "order:{"}, ValueError),
        ({"key": "order:{order!x}"}, ValueError),
        ({"key": "order:{order:d}"}, ValueError),
        ({"key": "order:{order:{width}}"}, ValueError),
        ({"wait": -1}, ValueError),
        ({"lease": 0}, ValueError),
        ({"status": 200}, ValueError),
        ({"status": "409"}, TypeError),
        ({"status": True}, TypeError),
        ({"on_unavailable": "skip"}, ValueError),
    ],
)
def test_impossible_settings_are_refused_when_decorating(arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        synchronized(**({"key": "a"} | arguments))


def test_only_coroutine_functions_can_be_decorated() -> None:
    with pytest.raises(TypeError, match="coroutine functions"):
        synchronized("a")(functools.partial)  # type: ignore[type-var]
    with pytest.raises(TypeError, match="coroutine functions"):
        synchronized("a")(OrderView)


def alternatives(request: web.Request) -> "web.Response | web.FileResponse":
    raise NotImplementedError


def by_callback(request: web.Request) -> Awaitable[web.Response]:
    raise NotImplementedError


async def as_middleware(request: Any, handler: Any) -> Any: ...


@pytest.mark.parametrize(
    "handler",
    [held, alternatives, by_callback, as_middleware, Orders.pay, OrderView, OrderView.post],
    ids=["function", "union", "awaitable", "middleware", "method", "view", "method of a view"],
)
def test_a_decorator_without_a_key_is_refused_when_decorating(handler: Any) -> None:
    with pytest.raises(TypeError, match="a bare @synchronized has no key"):
        synchronized(handler)


async def by_a_stranger(request: "Stranger") -> str:  # type: ignore[name-defined]  # noqa: F821
    return "a"


@pytest.mark.parametrize(
    "key",
    [by_body, by_a_stranger, lambda request: "a", functools.partial(min, "a"), "{0}".format],
    ids=["coroutine function", "annotations for checkers", "lambda", "partial", "no signature"],
)
def test_a_key_that_may_be_a_function_of_the_request_is_taken(key: Any) -> None:
    assert callable(synchronized(key)(held))


async def test_a_call_without_a_request_is_refused() -> None:
    with pytest.raises(TypeError, match="no request"):
        await synchronized("a")(held)("not a request")  # type: ignore[arg-type]


# While it runs, and after it.


async def test_the_lock_is_free_before_the_response_leaves(app: web.Application, locks: LockClient) -> None:
    locked: list[bool] = []

    async def look(request: web.Request, response: web.StreamResponse) -> None:
        locked.append(await locks.lock("a").locked())

    app.on_response_prepare.append(look)
    post(app, "/", synchronized("a")(held))
    async with serving(app) as session, session.post("/") as response:
        assert response.status == 200
    assert locked == [False]


async def test_a_waiter_comes_in_when_the_lock_is_free(app: web.Application, locks: LockClient) -> None:
    post(app, "/", synchronized("a", wait=60)(held))
    async with serving(app) as session:
        async with locks.lock("a"):
            request = asyncio.create_task(status_of(session, "/"))
            await until(lambda: locks.statistics().parked == 1)
        assert await request == 200


async def test_a_status_may_be_chosen(app: web.Application, locks: LockClient) -> None:
    post(app, "/", synchronized("a", status=423)(held))
    async with serving(app) as session, locks.lock("a"), session.post("/") as response:
        assert await is_problem(response, 423)


async def test_a_lease_may_be_chosen(app: web.Application) -> None:
    @synchronized("a", lease=7)
    async def handler(request: web.Request) -> web.Response:
        lease = lease_from(request)
        return web.json_response([lease.lease, lease.watched])

    post(app, "/", handler)
    async with serving(app) as session, session.post("/") as response:
        assert await response.json() == [7, False]


async def test_the_lease_is_that_of_the_innermost_lock(app: web.Application) -> None:
    post(app, "/", synchronized("outer")(synchronized("inner")(held)))
    async with serving(app) as session, session.post("/") as response:
        assert await response.text() == "inner"


async def test_the_lease_is_the_handlers_own_again_after_a_nested_one(app: web.Application) -> None:
    nested = synchronized("inner")(held)

    @synchronized("outer")
    async def handler(request: web.Request) -> web.Response:
        inner = await nested(request)
        return web.Response(text=f"{inner.text} in {(await held(request)).text}")

    post(app, "/", handler)
    async with serving(app) as session, session.post("/") as response:
        assert await response.text() == "inner in outer"


async def test_a_middleware_finds_no_lease_of_a_handler_that_is_through(app: web.Application) -> None:
    seen: list[str] = []

    @web.middleware
    async def after(request: web.Request, handler: Handler) -> web.StreamResponse:
        response = await handler(request)
        with pytest.raises(RuntimeError, match="has no lease") as raised:
            lease_from(request)
        seen.append(str(raised.value))
        return response

    app.middlewares.append(after)
    post(app, "/", synchronized("a")(held))
    async with serving(app) as session, session.post("/") as response:
        assert response.status == 200
    assert len(seen) == 1


async def test_a_handler_may_take_its_lock_again(app: web.Application) -> None:
    @synchronized("a")
    async def handler(request: web.Request) -> web.Response:
        async with locks_from(request).lock("a") as lease:
            return web.json_response(lease.holds)

    post(app, "/", handler)
    async with serving(app) as session, session.post("/") as response:
        assert await response.json() == 2


async def test_an_error_of_the_handler_is_its_own_and_frees_the_lock(app: web.Application, locks: LockClient) -> None:
    @synchronized("a")
    async def handler(request: web.Request) -> web.Response:
        raise web.HTTPNotFound(text="no such order")

    post(app, "/", handler)
    async with serving(app) as session, session.post("/") as response:
        assert (response.status, await response.text()) == (404, "no such order")
    assert not await locks.lock("a").locked()


async def test_a_success_may_be_raised(app: web.Application, locks: LockClient) -> None:
    @synchronized("a")
    async def handler(request: web.Request) -> web.Response:
        raise web.HTTPSeeOther("/elsewhere")

    post(app, "/", handler)
    async with serving(app) as session, session.post("/", allow_redirects=False) as response:
        assert (response.status, response.headers["Location"]) == (303, "/elsewhere")
    assert not await locks.lock("a").locked()


async def test_without_a_lock_there_is_no_lease(app: web.Application, caplog: pytest.LogCaptureFixture) -> None:
    post(app, "/", held)
    async with serving(app) as session, session.post("/") as response:
        assert response.status == 500
    assert "not decorated with `synchronized`" in caplog.text


# Lost.


async def status_of(session: ClientSession, path: str) -> int:
    async with session.post(path, allow_redirects=False) as response:
        assert response.status < 500 or await is_problem(response, 503)
        return response.status


async def lost_in(app: web.Application, locks: LockClient, work: Callable[[], Awaitable[web.Response]]) -> int:
    """The answer to the client of a handler that loses its lock in the midst of *work*."""
    inside = asyncio.Event()

    @synchronized("a")
    async def handler(request: web.Request) -> web.Response:
        inside.set()
        return await work()

    post(app, "/", handler)
    async with serving(app) as session:
        request = asyncio.create_task(status_of(session, "/"))
        await inside.wait()
        await lose(locks, "a")
        return await request


async def test_a_handler_that_loses_its_lock_is_cancelled_and_can_roll_back(
    app: web.Application, locks: LockClient
) -> None:
    steps: list[str] = []

    async def work() -> web.Response:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.001)
            steps.append("rolled back")
        return web.Response()

    assert await lost_in(app, locks, work) == 503
    assert steps == ["rolled back"]


async def test_a_handler_that_overhears_its_cancellation_has_no_success_to_tell(
    app: web.Application, locks: LockClient
) -> None:
    async def work() -> web.Response:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return web.Response(text="paid")
        return web.Response()

    assert await lost_in(app, locks, work) == 503


async def test_a_handler_that_raises_the_loss_has_no_success_either(app: web.Application, locks: LockClient) -> None:
    async def work() -> web.Response:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise web.HTTPSeeOther("/paid") from None
        return web.Response()

    assert await lost_in(app, locks, work) == 503


@pytest.mark.parametrize("error", [ZeroDivisionError(), web.HTTPNotFound(), LockTimeoutError("another", 1)])
async def test_a_middleware_cannot_turn_a_lost_lock_into_a_success(
    app: web.Application, locks: LockClient, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    @web.middleware
    async def done(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except type(error):
            return web.Response(text="paid")

    async def work() -> web.Response:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise error from None
        return web.Response()

    app.middlewares.insert(0, done)
    assert await lost_in(app, locks, work) == 503
    logged = [record.exc_info[1] for record in caplog.records if record.exc_info]
    assert logged == ([] if isinstance(error, LockTimeoutError) else [error])


async def test_a_handler_that_blocked_the_loop_for_longer_than_its_lease_has_no_success(app: web.Application) -> None:
    @synchronized("a", lease=0.1)
    async def handler(request: web.Request) -> web.Response:
        time.sleep(0.3)
        raise web.HTTPOk(text="paid")

    post(app, "/", handler)
    async with serving(app) as session:
        assert await status_of(session, "/") == 503


# Redis is gone.


async def test_without_redis_the_handler_does_not_run_and_the_reason_is_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[web.Request] = []

    @synchronized("a")
    async def handler(request: web.Request) -> web.Response:
        ran.append(request)
        return web.Response()

    app = web.Application()
    setup(app, "redis://127.0.0.1:1", config=LockConfig(command_timeout=0.1, release_timeout=0.1))
    post(app, "/", handler)
    monkeypatch.setattr(_problem, "_warned", {})
    async with serving(app) as session, session.post("/") as response:
        assert await is_problem(response, 503)
    assert not ran
    assert "BackendError: acquire of " in caplog.text


async def test_a_release_that_is_not_answered_takes_no_success_back(app: web.Application, locks: LockClient) -> None:
    @synchronized("a")
    async def handler(request: web.Request) -> web.Response:
        faults.enter_context(failing_commands(locks))
        return web.Response(text="paid")

    post(app, "/", handler)
    with ExitStack() as faults:
        async with serving(app) as session, session.post("/") as response:
            assert (response.status, await response.text()) == (200, "paid")
    assert not await locks.lock("a").locked()


async def test_a_handler_may_run_without_its_lock_and_lease_while_redis_fails(
    app: web.Application, locks: LockClient
) -> None:
    def name_after_a_failure(request: web.Request) -> str:
        faults.enter_context(failing_commands(locks))
        return "b"

    @synchronized("a")
    @synchronized(name_after_a_failure, on_unavailable="run")
    async def handler(request: web.Request) -> web.Response:
        with pytest.raises(RuntimeError, match="runs without its lock"):
            lease_from(request)
        return web.Response(text="paid")

    post(app, "/", handler)
    with ExitStack() as faults:
        async with serving(app) as session, session.post("/") as response:
            assert (response.status, await response.text()) == (200, "paid")
    assert not await locks.lock("b").locked()


# Errors of aiolock that a handler lets out.


@pytest.mark.parametrize(("error", "status"), [("timeout", 409), ("backend", 503), ("loss", 503)])
async def test_the_middleware_answers_the_errors_of_handlers(
    app: web.Application, locks: LockClient, error: str, status: int
) -> None:
    async def handler(request: web.Request) -> web.Response:
        if error == "timeout":
            raise LockTimeoutError("a", 0.1)
        if error == "backend":
            with failing_commands(locks):
                await locks.lock("a").acquire()
        async with locks.lock("a"):
            await lose(locks, "a")
        return web.Response()

    post(app, "/", handler)
    async with serving(app) as session, session.post("/") as response:
        assert await is_problem(response, status)


@pytest.mark.parametrize("kind", ["decorated", "by hand"])
async def test_a_client_of_another_loop_is_a_mistake_of_the_service(
    server: Server, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    async def by_hand(request: web.Request) -> web.Response:
        async with locks_from(request).lock("a"):
            return web.Response()

    app = web.Application(middlewares=[problems])
    app[LOCKS] = await client_of_another_loop(server.url)
    post(app, "/", by_hand if kind == "by hand" else synchronized("a")(held))
    async with serving(app) as session, session.post("/") as response:
        assert response.status == 500
    assert "another event loop" in caplog.text


@pytest.mark.parametrize("kind", ["decorated", "by hand"])
async def test_a_foreign_key_is_a_mistake_in_the_service(app: web.Application, redis: Redis, kind: str) -> None:
    ran: list[web.Request] = []

    async def handler(request: web.Request) -> web.Response:
        ran.append(request)
        return web.Response()

    async def by_hand(request: web.Request) -> web.Response:
        async with locks_from(request).lock("a"):
            return await handler(request)

    post(app, "/", by_hand if kind == "by hand" else synchronized("a")(handler))
    await redis.set("a", "something else")
    async with serving(app) as session, session.post("/") as response:
        assert response.status == 500
        assert "Retry-After" not in response.headers
    assert not ran
    assert await redis.get("a") == b"something else"


async def test_a_mistake_of_the_service_stays_one(app: web.Application, locks: LockClient) -> None:
    async def handler(request: web.Request) -> web.Response:
        await locks.lock("a").release()
        return web.Response()

    post(app, "/", handler)
    async with serving(app) as session, session.post("/") as response:
        assert response.status == 500


async def test_the_answer_names_neither_lock_nor_owner(app: web.Application, locks: LockClient) -> None:
    post(app, "/", synchronized("secret")(held))
    async with serving(app) as session, locks.lock("secret"), session.post("/") as response:
        told = f"{await response.text()} {dict(response.headers)} {response.reason}"
    assert "secret" not in told
    assert session_of(locks).client not in told


# Applications and their parts.


@pytest.mark.parametrize("where", ["parent", "part"])
async def test_a_part_of_an_application_finds_the_client(redis: Redis, locks: LockClient, where: str) -> None:
    parent, part = web.Application(), web.Application()
    setup(parent if where == "parent" else part, redis)
    post(part, "/{order_id}", synchronized("order:{order_id}")(held))
    parent.add_subapp("/orders", part)
    async with serving(parent) as session:
        async with session.post("/orders/7") as response:
            assert await response.text() == "order:7"
        async with locks.lock("order:7"), session.post("/orders/7") as response:
            assert await is_problem(response, 409)


async def test_an_application_without_a_client_says_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    app = web.Application()
    post(app, "/", synchronized("a")(held))
    async with serving(app) as session, session.post("/") as response:
        assert response.status == 500
    assert "call aiolock.aiohttp.setup(app, url)" in caplog.text


async def test_a_client_that_is_there_is_left_alone(app: web.Application, locks: LockClient) -> None:
    async with serving(app):
        assert app[LOCKS] is locks
    async with locks.lock("a"):
        pass


async def test_a_borrowed_redis_is_not_closed(redis: Redis) -> None:
    app = web.Application()
    setup(app, redis)
    post(app, "/", synchronized("a")(held))
    async with serving(app) as session:
        assert await status_of(session, "/") == 200
    assert "closed" in repr(app[LOCKS])
    assert await redis.ping()


@pytest.mark.parametrize(("redis", "error"), [(7, TypeError), ("http://localhost", ValueError)])
def test_an_object_that_is_no_redis_is_refused_at_once(redis: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        setup(web.Application(), redis)


@pytest.mark.parametrize("given", [LockClient, LockClient(Redis()), LockClient.from_url, lambda: LockClient(Redis())])
def test_a_lock_client_or_its_maker_is_refused_with_advice(given: Any) -> None:
    with pytest.raises(TypeError, match=r"setup\(app, .redis://.*\) makes the LockClient itself: give it a URL, or"):
        setup(web.Application(), given)


def test_an_application_is_set_up_once(app: web.Application) -> None:
    with pytest.raises(RuntimeError, match="called for this application before"):
        setup(app, "redis://localhost")


async def test_an_application_that_has_ended_is_not_started_again(redis: Redis) -> None:
    """The client of the application is closed, and aiohttp does not let us replace it."""
    app = web.Application()
    setup(app, redis)
    async with serving(app):
        pass
    with pytest.raises(RuntimeError, match="make a new one to start"):
        async with serving(app):
            pass


async def test_a_start_that_failed_may_be_tried_again(redis: Redis) -> None:
    app = web.Application()
    setup(app, redis)
    post(app, "/", synchronized("a")(held))
    tries = []

    async def connect_to_something_else(app: web.Application) -> None:
        tries.append(app)
        if len(tries) == 1:
            raise ConnectionError

    app.on_startup.append(connect_to_something_else)
    with pytest.raises(ConnectionError):
        async with serving(app):
            pass
    async with serving(app) as session, session.post("/") as response:
        assert response.status == 200


async def test_the_middleware_alone_is_of_use(locks: LockClient) -> None:
    app = web.Application(middlewares=[problems])
    app[LOCKS] = locks

    async def handler(request: web.Request) -> web.Response:
        async with locks_from(request).lock("a").hold(wait=0):
            return web.Response()

    post(app, "/", handler)
    async with serving(app) as session, locks.lock("a"), session.post("/") as response:
        assert await is_problem(response, 409)


async def test_a_slow_upload_holds_the_lock_of_a_handler_that_reads_it(app: web.Application, locks: LockClient) -> None:
    @synchronized("order:{order_id}")
    async def handler(request: web.Request) -> web.Response:
        return web.Response(body=await request.read())

    async def read(request: web.Request) -> str:
        await request.read()
        return "read before"

    @synchronized(read)
    async def careful(request: web.Request) -> web.Response:
        return await handler(request)

    post(app, "/careless/{order_id}", handler)
    post(app, "/careful/{order_id}", careful)
    async with serving(app) as client:
        url = client._base_url
        assert url is not None
        reader, writer = await asyncio.open_connection(url.host, url.port)
        for path, early in (("careful", False), ("careless", True)):
            writer.write(f"POST /{path}/7 HTTP/1.1\r\nHost: test\r\nContent-Length: 4\r\n\r\nha".encode())
            if early:
                await until(locks.lock("order:7").locked)
            else:
                # A wait that must not happen would hang.
                await asyncio.sleep(0.2)
                assert locks.statistics().held == 0
            writer.write(b"lf")
            await reader.readuntil(b"half")
        writer.close()


async def test_the_response_may_come_before_the_release_is_answered(proxy: Proxy) -> None:
    app = web.Application()
    setup(app, "redis://127.0.0.1:1")
    post(app, "/", synchronized(lambda request: "all", release="behind")(held))
    async with client_behind(proxy) as locks:
        app[LOCKS] = locks
        async with serving(app) as session:
            async with session.post("/") as response:
                assert response.status == 200
            await answered(locks)
            withheld = proxy.install(Rule(script(RELEASE_CLEAN), withhold_reply()))
            async with session.post("/") as response:
                assert await response.text() == "all"
            assert locks.statistics().pending == 1
            await withheld.caught()
            withheld.let_go()
            await answered(locks)


def test_a_decorator_with_an_unknown_word_for_release_is_refused() -> None:
    with pytest.raises(ValueError, match=r'^release must be "answered" or "behind", not'):
        synchronized("all", release="later")  # type: ignore[arg-type]
