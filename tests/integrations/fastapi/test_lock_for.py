"""`lock_for`: which lock a request takes, for each sort of endpoint, and until when."""

import asyncio
import enum
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path as PathOfFile
from typing import Annotated, Any
from uuid import UUID

import httpx
import pytest
from fastapi import APIRouter, BackgroundTasks, Body, Depends, FastAPI, Header, Path, Query, Request, WebSocket
from fastapi.exceptions import DependencyScopeError
from fastapi.testclient import TestClient
from pydantic import BaseModel, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema
from redis.asyncio import Redis
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.responses import Response, StreamingResponse
from starlette.websockets import WebSocketDisconnect
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

import aiolock.fastapi
from aiolock import Lease, LockClient, LockTimeoutError, MultiLease
from aiolock._embedded_server import Server
from aiolock._scripts import RELEASE_CLEAN
from aiolock.fastapi import IdempotentRoute, Locks, idempotent, lock_for
from aiolock.testing import failing_commands, lose
from tests.support.asgi import served
from tests.support.holding import client_behind
from tests.support.makers import MAKERS, is_taken, seen_as
from tests.support.observe import answered, until
from tests.support.proxy import Proxy, Rule, script, withhold_reply


class Colour(enum.Enum):
    RED = "red"


class Size(enum.StrEnum):
    LARGE = "large"


class Order(BaseModel):
    shop: int
    number: int


@asynccontextmanager
async def requests(app: FastAPI, locks: LockClient) -> AsyncIterator[httpx.AsyncClient]:
    app.dependency_overrides[aiolock.fastapi.get_locks] = lambda: locks
    async with served(app) as client:
        yield client


# The chosen lock.

TEMPLATES: dict[str, tuple[str, Any, str, str]] = {
    "int": ("order:{value}", int, "07", "order:7"),
    "date": ("day:{value}", date, "2026-11-20", "day:2026-11-20"),
    "uuid": ("user:{value}", UUID, UUID(int=7).hex, f"user:{UUID(int=7)}"),
    "enum": ("paint:{value}", Colour, "red", "paint:red"),
    "str enum": ("shirt:{value}", Size, "large", "shirt:large"),
    "text": ("name:{value}", str, "07", "name:07"),
    "format": ("order:{value:05d}", int, "7", "order:00007"),
    "alias": ("order:{value}", Annotated[int, Path(alias="value")], "7", "order:7"),
}


@pytest.mark.parametrize("case", TEMPLATES)
async def test_a_template_is_filled_with_path_parameters_as_validated(case: str, locks: LockClient) -> None:
    template, kind, sent, name = TEMPLATES[case]
    app = FastAPI()

    async def endpoint(value: Any, lease: Annotated[Lease, lock_for(template)]) -> str:
        return lease.name

    endpoint.__annotations__["value"] = kind
    app.get("/{value}")(endpoint)
    async with requests(app, locks) as client:
        assert (await client.get(f"/{sent}")).json() == name


async def test_a_path_parameter_is_read_from_where_the_endpoint_reads_it(locks: LockClient) -> None:
    """FastAPI's versions differ in which of two aliases counts."""
    app = FastAPI()

    @app.get("/{first}/{second}")
    async def endpoint(
        value: Annotated[int, Path(alias="first", validation_alias="second")],
        lease: Annotated[Lease, lock_for("order:{value}")],
    ) -> bool:
        return lease.name == f"order:{value}"

    async with requests(app, locks) as client:
        assert (await client.get("/07/08")).json() is True


async def test_a_template_is_filled_with_query_parameters(locks: LockClient) -> None:
    app = FastAPI()

    @app.get("/{shop}")
    async def endpoint(
        lease: Annotated[Lease, lock_for("{shop}:{order}:{page}")],
        shop: int,
        order: Annotated[int, Query(alias="order-id")],
        page: int = 1,
    ) -> str:
        return lease.name

    async with requests(app, locks) as client:
        assert (await client.get("/03?order-id=007")).json() == "3:7:1"
        assert (await client.get("/3?order-id=7&page=2")).json() == "3:7:2"
        refused = await client.get("/3?order-id=seven")
        assert refused.status_code == 422
        assert refused.json()["detail"][0]["loc"] == ["query", "order-id"]


NAMES_THAT_ARE_REFUSED = ["", "aiolock_token:{order}", "\ud800", "{order}:timeout", "x" * 1025]


@pytest.mark.parametrize("name", NAMES_THAT_ARE_REFUSED, ids=["empty", "ours", "surrogate", "theirs", "long"])
async def test_a_request_that_makes_a_name_which_is_refused_is_not_valid(name: str, locks: LockClient) -> None:
    app = FastAPI()

    async def chosen() -> str:
        return name

    @app.get("/")
    async def endpoint(lease: Annotated[Lease, lock_for(chosen)]) -> None: ...

    async with requests(app, locks) as client:
        refused = await client.get("/")
    assert refused.status_code == 422
    assert refused.json()["detail"][0]["type"] == "value_error"
    assert "aiolock" not in refused.text


async def test_a_set_is_no_part_of_a_name_because_it_has_another_order_in_each_process(locks: LockClient) -> None:
    app = FastAPI()

    @app.get("/", dependencies=[lock_for("tags:{tags}")])
    async def endpoint(tags: Annotated[set[str], Query()]) -> None: ...

    app.dependency_overrides[aiolock.fastapi.get_locks] = lambda: locks
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        with pytest.raises(ValueError, match=r"^the name 'tags:{tags}' has a set in {tags}"):
            await client.get("/?tags=a&tags=b")


class Id:
    """A type of parameters that has no text."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(lambda value: cls())


async def test_an_object_without_a_text_is_no_part_of_a_name_because_each_request_would_have_its_own_lock(
    locks: LockClient,
) -> None:
    app = FastAPI()

    @app.get("/{order}", dependencies=[lock_for("order:{order}")])
    async def endpoint(order: Id) -> None:
        raise AssertionError("must not run")

    app.dependency_overrides[aiolock.fastapi.get_locks] = lambda: locks
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        with pytest.raises(ValueError, match=r"^the name 'order:{order}' has the address of an object in {order}"):
            await client.get("/7")
    assert locks.statistics().commands == 0


async def test_a_client_may_send_a_text_that_looks_like_an_address(locks: LockClient) -> None:
    app = FastAPI()

    @app.get("/{name}")
    async def endpoint(name: str, lease: Annotated[Lease, lock_for("name:{name}")]) -> str:
        return lease.name

    async with requests(app, locks) as client:
        assert (await client.get(f"/{object()}")).json().startswith("name:<object object at 0x")


async def test_a_name_of_another_type_is_a_mistake_in_the_service(locks: LockClient) -> None:
    app = FastAPI()

    @app.get("/")
    async def endpoint(lease: Annotated[Lease, lock_for(lambda: 7)]) -> None: ...

    async with requests(app, locks) as client:
        assert (await client.get("/")).status_code == 500


async def test_a_parameter_of_the_template_may_not_be_left_out_unless_it_has_a_default(locks: LockClient) -> None:
    app = FastAPI()

    @app.get("/")
    async def endpoint(
        lease: Annotated[Lease, lock_for("{order}:{page}")],
        order: Annotated[int | None, Query(alias="order-id")] = None,
        page: int = 1,
    ) -> str:
        return lease.name

    async with requests(app, locks) as client:
        assert (await client.get("/?order-id=7")).json() == "7:1"
        refused = await client.get("/")
    assert refused.status_code == 422
    assert refused.json()["detail"][0].items() >= {"type": "missing", "loc": ["query", "order-id"]}.items()


async def test_a_template_may_name_a_parameter_of_another_dependency(locks: LockClient) -> None:
    app = FastAPI()

    async def order(number: int) -> str:
        return f"order {number}"

    @app.get("/{number}", dependencies=[lock_for("order:{number}")])
    async def endpoint(found: Annotated[str, Depends(order)], locks: Locks) -> bool:
        return await locks.lock("order:7").held()

    async with requests(app, locks) as client:
        assert (await client.get("/07")).json() is True


class Tenants:
    """A dependency that is an object."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    async def __call__(self, shop: int) -> str:
        return f"{self.kind}:{shop}"


class OrderName(str):
    """A dependency that is a class."""

    __slots__ = ()

    def __new__(cls, shop: int) -> "OrderName":
        return super().__new__(cls, f"shop:{shop}")


async def by_coroutine(shop: int, user: Annotated[str, Header()]) -> str:
    return f"{user}:{shop}"


def by_function(order: Annotated[Order, Body()]) -> str:
    return f"{order.shop}:{order.number}"


async def by_generator(shop: int) -> AsyncIterator[str]:
    yield f"generated:{shop}"


KEYS: dict[str, tuple[Any, str]] = {
    "coroutine function": (by_coroutine, "ann:7"),
    "function of the body": (by_function, "7:42"),
    "class": (OrderName, "shop:7"),
    "object": (Tenants("tenant"), "tenant:7"),
    "generator": (by_generator, "generated:7"),
}


@pytest.mark.parametrize("kind", KEYS)
async def test_a_dependency_gives_the_name(kind: str, locks: LockClient) -> None:
    key, name = KEYS[kind]
    app = FastAPI()

    @app.post("/shops/{shop}")
    async def endpoint(lease: Annotated[Lease, lock_for(key)]) -> str:
        return lease.name

    async with requests(app, locks) as client:
        sent = await client.post("/shops/07", headers={"user": "ann"}, json={"shop": 7, "number": 42})
        assert sent.json() == name


def both_names(source: int, target: int) -> list[str]:
    return [f"account:{source}", f"account:{target}"]


def target_name(target: int) -> str:
    return f"account:{target}"


@pytest.mark.parametrize(
    "keys",
    [("account:{source}", "account:{target}"), ("account:{source}", target_name), ("account:{target}", both_names)],
    ids=["templates", "a template and a name", "a template and names"],
)
async def test_several_names_are_one_multi_lock(keys: tuple[Any, ...], locks: LockClient) -> None:
    app = FastAPI()
    together = 0

    @app.post("/{source}/{target}")
    async def transfer(
        source: int, target: int, lease: Annotated[MultiLease, lock_for(*keys, wait=10)]
    ) -> dict[str, int]:
        nonlocal together
        together += 1
        assert together == 1
        await asyncio.sleep(0)
        lease.check()
        together -= 1
        return dict(lease.tokens)

    async with requests(app, locks) as client:
        answers = await asyncio.gather(*(client.post(path) for path in ("/1/2", "/2/1", "/1/1")))
        assert [list(answer.json()) for answer in answers] == [["account:1", "account:2"]] * 2 + [["account:1"]]
        assert (await client.post("/1/x")).status_code == 422
        with failing_commands(locks):
            assert (await client.post("/1/2")).status_code == 503
    await answered(locks)
    assert not await locks.multi("account:1", "account:2").locked()


@pytest.mark.parametrize("kind", MAKERS)
async def test_a_request_may_run_under_another_kind_than_a_lock(
    kind: str, locks: LockClient, other: LockClient
) -> None:
    """The endpoint gets the result of that kind's `hold`; refusals and the close of the client are as with a lock."""
    app = FastAPI()
    of, obstacle = MAKERS[kind]

    @app.post("/{day}")
    async def endpoint(day: int, granted: Annotated[Any, lock_for("report:{day}", of=of)]) -> bool:
        return seen_as(kind, granted, f"report:{day}") and await is_taken(locks, kind, f"report:{day}")

    async with requests(app, locks) as client:
        assert (await client.post("/7")).json() is True
        assert not await is_taken(locks, kind, "report:7")
        async with obstacle(other, "report:7"):
            assert (await client.post("/7")).status_code == 409
        assert (await client.post("/x")).status_code == 422


async def test_a_failing_maker_is_a_mistake_in_the_service(locks: LockClient) -> None:
    app = FastAPI()

    @app.post("/{name}", dependencies=[lock_for("{name}", of=lambda locks, name: locks.counting_semaphore(name, -1))])
    async def endpoint(name: str) -> None: ...

    async with requests(app, locks) as client:
        assert (await client.post("/aiolock_token:a")).status_code == 422
        assert (await client.post("/a")).status_code == 500
    with pytest.raises(TypeError, match="of must be a function"):
        lock_for("a", of=locks.counting_semaphore("a", 4))  # type: ignore[arg-type]


async def test_the_holder_of_a_counted_permit_is_told_of_the_close(redis: Redis) -> None:
    app = FastAPI()
    began, rolled_back = asyncio.Event(), asyncio.Event()

    @app.post("/", dependencies=[lock_for("seats", of=lambda locks, name: locks.counting_semaphore(name, 3))])
    async def endpoint() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            rolled_back.set()

    async with LockClient(redis) as locks, requests(app, locks) as client:
        answer = asyncio.create_task(client.post("/"))
        await began.wait()
        await locks.aclose()
        assert rolled_back.is_set()
        assert (await answer).status_code == 503
    assert await redis.get("seats") == b"3"


async def test_an_exception_under_a_counted_permit_passes(locks: LockClient) -> None:
    app = FastAPI()

    @app.post("/", dependencies=[lock_for("seats", of=lambda locks, name: locks.counting_semaphore(name, 3))])
    async def endpoint() -> None:
        raise LockTimeoutError("another", 1)

    async with requests(app, locks) as client:
        assert (await client.post("/")).status_code == 500


async def test_the_loss_of_one_of_several_is_reported_as_any_loss(locks: LockClient) -> None:
    app = FastAPI()

    @app.post("/{source}/{target}", dependencies=[lock_for("account:{source}", "account:{target}")])
    async def transfer(source: int, target: int) -> None:
        await lose(locks, f"account:{target}")
        await asyncio.sleep(10)

    async with requests(app, locks) as client:
        assert (await client.post("/1/2")).status_code == 503
    assert not await locks.multi("account:1", "account:2").locked()


async def test_an_override_that_gives_no_client_is_refused() -> None:
    app = FastAPI()

    @app.get("/", dependencies=[lock_for("orders")])
    async def endpoint() -> None: ...

    app.dependency_overrides[aiolock.fastapi.get_locks] = lambda: None
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        with pytest.raises(TypeError, match="an override of get_locks must return a LockClient, not None"):
            await client.get("/")


async def test_the_dependency_of_a_name_can_be_overridden(locks: LockClient) -> None:
    app = FastAPI()
    app.dependency_overrides[by_coroutine] = lambda: "another"

    @app.post("/{shop}")
    async def endpoint(lease: Annotated[Lease, lock_for(by_coroutine)]) -> str:
        return lease.name

    async with requests(app, locks) as client:
        assert (await client.post("/7")).json() == "another"


@pytest.mark.parametrize(
    "template", ["{}", "order:{0}", "order:{order.id}", "{order[id]}", "{order:{width}}", "{order!x}", ""]
)
def test_a_template_that_cannot_work_is_refused_at_once(template: str) -> None:
    with pytest.raises(ValueError, match=r"name of a parameter|empty"):
        lock_for(template)


@pytest.mark.parametrize("key", [None, 5, b"order"])
def test_a_key_that_is_neither_a_template_nor_a_dependency_is_refused_at_once(key: Any) -> None:
    with pytest.raises(TypeError, match="the key must be a str"):
        lock_for(key)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"wait": -1}, {"lease": 0}, {"wait": "2"}, {"lease": True}, {"status": 200}, {"status": "409"}),
        {"on_unavailable": "skip"},
    ],
    ids=lambda wrong: "=".join(map(str, *wrong.items())),
)
def test_settings_that_cannot_work_are_refused_at_once(wrong: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError), match=next(iter(wrong))):
        lock_for("order", **wrong)


async def test_the_body_is_looked_at_when_the_lock_is_there(locks: LockClient) -> None:
    app = FastAPI()

    @app.post("/", dependencies=[lock_for("order")])
    async def endpoint(body: dict[str, int]) -> None: ...

    async with requests(app, locks) as client, locks.lock("order", owner="somebody else"):
        assert (await client.post("/", json="no object")).status_code == 409
    async with requests(app, locks) as client:
        assert (await client.post("/", json="no object")).status_code == 422
    assert locks.statistics().held == 0


async def test_the_body_has_one_name_in_the_dependency_and_in_the_endpoint(locks: LockClient) -> None:
    """FastAPI's doing: with two names it expects an object that has both."""
    app = FastAPI()

    async def name(order: Order) -> str:
        return f"order:{order.number}"

    @app.post("/one-name", dependencies=[lock_for(name)])
    async def one(order: Order) -> int:
        return order.number

    @app.post("/two-names", dependencies=[lock_for(name)])
    async def two(body: Order) -> int:
        return body.number

    async with requests(app, locks) as client:
        body = {"shop": 1, "number": 7}
        assert (await client.post("/one-name", json=body)).json() == 7
        assert (await client.post("/two-names", json=body)).status_code == 422
        assert (await client.post("/two-names", json={"order": body, "body": body})).json() == 7


async def test_a_template_with_an_unknown_parameter_says_what_to_do(locks: LockClient) -> None:
    app = FastAPI()

    @app.get("/{order_id}")
    async def endpoint(order_id: int, lease: Annotated[Lease, lock_for("order:{order}")]) -> None: ...

    app.dependency_overrides[aiolock.fastapi.get_locks] = lambda: locks
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        with pytest.raises(RuntimeError, match=r"'order' is no path or query parameter.*\(it has: order_id\)"):
            await client.get("/7")


@pytest.mark.skipif(not hasattr(FastAPI, "frontend"), reason="this FastAPI serves no files by itself")
@pytest.mark.parametrize("under", [lock_for("shop"), idempotent(None, required=False)], ids=["lock_for", "idempotent"])
async def test_a_file_without_an_endpoint_is_not_locked_and_the_error_says_so(
    under: Any, locks: LockClient, tmp_path: PathOfFile
) -> None:
    (tmp_path / "index.html").write_text("files")
    app = FastAPI(dependencies=[under])
    app.router.route_class = IdempotentRoute

    @app.get("/endpoint")
    async def endpoint() -> None: ...

    app.frontend("/", directory=str(tmp_path))
    app.dependency_overrides[aiolock.fastapi.get_locks] = lambda: locks
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        assert (await client.get("/endpoint")).status_code == 200
        with pytest.raises(RuntimeError, match="'/' has no endpoint, as it is a file of a `frontend`"):
            await client.get("/", headers={"Accept": "text/html"})
    assert locks.statistics().held == 0


@pytest.mark.parametrize("kind", ["get", "websocket"])
@pytest.mark.parametrize("where", ["endpoint", "router", "inclusion"])
async def test_an_application_whose_template_does_not_fit_an_endpoint_does_not_start(kind: str, where: str) -> None:
    in_tenant = [lock_for("t:{tenant}")]
    router = APIRouter(dependencies=in_tenant if where == "router" else [])

    async def endpoint() -> None: ...

    getattr(router, kind)("/{tenant}/fits", dependencies=in_tenant if where == "endpoint" else [])(with_tenant)
    app = FastAPI()
    app.include_router(router, prefix="/shop", dependencies=in_tenant if where == "inclusion" else [])
    start = aiolock.fastapi.lifespan("redis://127.0.0.1:1")
    async with start(app):
        pass
    getattr(router, kind)("/fits_not", dependencies=in_tenant if where == "endpoint" else [])(endpoint)
    other = FastAPI()
    other.include_router(router, prefix="/shop", dependencies=in_tenant if where == "inclusion" else [])
    with pytest.raises(RuntimeError, match=r"'t:{tenant}': 'tenant' is no path .* of /shop/fits_not \(it has: none\);"):
        async with start(other):
            pass


async def with_tenant(tenant: str) -> None: ...


async def untyped(order_id) -> None: ...  # type: ignore[no-untyped-def]


async def untyped_query(*, order_id=7) -> None: ...  # type: ignore[no-untyped-def]


async def of_any_type(order_id: Any) -> None: ...


@pytest.mark.parametrize(
    ("path", "endpoint"), [("/{order_id}", untyped), ("/", untyped_query), ("/{order_id}", of_any_type)]
)
async def test_a_parameter_without_a_type_makes_no_name_as_7_and_07_would_be_two(path: str, endpoint: Any) -> None:
    app = FastAPI()
    app.get(path, dependencies=[lock_for("order:{order_id}")])(endpoint)
    with pytest.raises(RuntimeError, match=r"'order_id' is no .* with a type.*write its type, as in order_id: int"):
        async with aiolock.fastapi.lifespan("redis://127.0.0.1:1")(app):
            pass


async def test_the_endpoint_says_the_type_of_a_parameter_that_a_dependency_takes_too(locks: LockClient) -> None:
    app = FastAPI()

    async def audit(order_id: str) -> None: ...

    @app.get("/{order_id}", dependencies=[Depends(audit)])
    async def endpoint(order_id: int, lease: Annotated[Lease, lock_for("order:{order_id}")]) -> str:
        return lease.name

    async with requests(app, locks) as client:
        assert (await client.get("/07")).json() == "order:7"


async def test_the_fields_of_a_model_of_parameters_are_none_that_a_template_can_name() -> None:
    class Page(BaseModel):
        number: int

    app = FastAPI()

    @app.get("/", dependencies=[lock_for("page:{number}")])
    async def endpoint(page: Annotated[Page, Query()]) -> None: ...

    with pytest.raises(RuntimeError, match="'number' is no path or query parameter"):
        async with aiolock.fastapi.lifespan("redis://127.0.0.1:1")(app):
            pass


# The sorts of endpoints.


def endpoints(router: FastAPI | APIRouter) -> None:
    @router.get("/async/{order}")
    async def asynchronous(order: int, lease: Annotated[Lease, lock_for("order:{order}")], locks: Locks) -> bool:
        assert lease.remaining > 0
        return await locks.lock("order:7").held()

    @router.get("/sync/{order}")
    def synchronous(order: int, lease: Annotated[Lease, lock_for("order:{order}")]) -> bool:
        lease.check()
        return lease.name == "order:7"

    @router.get("/decorated/{order}", dependencies=[lock_for("order:{order}")])
    async def decorated(order: int, locks: Locks) -> bool:
        return await locks.lock("order:7").held()


PATHS = ("/async/07", "/sync/07", "/decorated/07")


async def check_all(client: httpx.AsyncClient, locks: LockClient, redis: Redis, prefix: str = "") -> None:
    for path in PATHS:
        assert (await client.get(prefix + path)).json() is True
        assert await redis.exists("order:7") == 0
    async with LockClient(redis) as other, other.lock("order:7"):
        for path in PATHS:
            assert (await client.get(prefix + path)).status_code == 409


async def test_endpoints_of_an_application(locks: LockClient, redis: Redis) -> None:
    app = FastAPI()
    endpoints(app)
    async with requests(app, locks) as client:
        await check_all(client, locks, redis)


async def test_endpoints_of_a_mounted_application(locks: LockClient, redis: Redis) -> None:
    app, sub = FastAPI(), FastAPI()
    endpoints(sub)
    sub.dependency_overrides[aiolock.fastapi.get_locks] = lambda: locks
    app.mount("/sub", sub)
    async with requests(app, locks) as client:
        await check_all(client, locks, redis, "/sub")


async def test_endpoints_of_included_routers(locks: LockClient, redis: Redis) -> None:
    app, outer, inner = FastAPI(), APIRouter(prefix="/outer"), APIRouter(prefix="/inner")
    endpoints(inner)
    outer.include_router(inner)
    app.include_router(outer, prefix="/api")
    async with requests(app, locks) as client:
        await check_all(client, locks, redis, "/api/outer/inner")


async def test_endpoints_under_a_base_http_middleware(locks: LockClient, redis: Redis) -> None:
    app = FastAPI()
    endpoints(app)

    async def dispatch(request: Request, call_next: RequestResponseEndpoint) -> Response:
        return await call_next(request)

    app.add_middleware(BaseHTTPMiddleware, dispatch=dispatch)
    async with requests(app, locks) as client:
        await check_all(client, locks, redis)


async def test_a_lock_of_a_whole_router_over_the_parameter_of_its_prefix(locks: LockClient, redis: Redis) -> None:
    app, router = FastAPI(), APIRouter(dependencies=[lock_for("tenant:{tenant}")])

    @router.get("/held")
    async def held(tenant: int, locks: Locks) -> bool:
        return await locks.lock("tenant:7").held()

    app.include_router(router, prefix="/tenants/{tenant}", dependencies=[lock_for("again:{tenant}")])
    async with requests(app, locks) as client:
        assert (await client.get("/tenants/07/held")).json() is True
        async with LockClient(redis) as other, other.lock("again:7"):
            assert (await client.get("/tenants/007/held")).status_code == 409
            assert (await client.get("/tenants/8/held")).status_code == 200


def test_websockets_of_an_application_and_of_a_router(server: Server) -> None:
    app, router = FastAPI(lifespan=aiolock.fastapi.lifespan(server.url)), APIRouter()

    @router.websocket("/{room}")
    async def endpoint(websocket: WebSocket, room: int, lease: Annotated[Lease, lock_for("room:{room}")]) -> None:
        await websocket.accept()
        await websocket.send_text(lease.name)
        await websocket.receive_text()

    app.include_router(router)
    app.include_router(router, prefix="/rooms/{floor}")
    with TestClient(app) as client, client.websocket_connect("/07") as holder:
        assert holder.receive_text() == "room:7"
        with pytest.raises(WebSocketDisconnect) as refused, client.websocket_connect("/rooms/1/7"):
            pass
        assert refused.value.code == 1013
        assert "Somebody else" in refused.value.reason
        holder.send_text("done")


async def test_the_close_code_of_a_websocket(locks: LockClient) -> None:
    app = FastAPI()
    app.dependency_overrides[aiolock.fastapi.get_locks] = lambda: locks

    @app.websocket("/{room}")
    async def endpoint(websocket: WebSocket, room: int, lease: Annotated[Lease, lock_for("room:{room}")]) -> None:
        await websocket.accept()
        await websocket.send_text(lease.name)
        await websocket.receive_text()

    async with served(app) as client:
        url = f"ws://127.0.0.1:{client.base_url.port}/7"
        async with connect(url) as holder:
            assert await holder.recv() == "room:7"
            with pytest.raises(InvalidStatus) as refused:
                await connect(url)
            assert refused.value.response.status_code == 403
            await lose(locks, "room:7")
            with pytest.raises(ConnectionClosed) as closed:
                await holder.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1013


def test_a_websocket_whose_parameters_or_name_are_not_valid_is_closed_as_fastapi_does(server: Server) -> None:
    app = FastAPI(lifespan=aiolock.fastapi.lifespan(server.url))

    @app.websocket("/numbered/{room}")
    async def numbered(websocket: WebSocket, room: int, lease: Annotated[Lease, lock_for("room:{room}")]) -> None: ...

    @app.websocket("/named")
    async def named(websocket: WebSocket, lease: Annotated[Lease, lock_for("{room}")], room: str = "") -> None: ...

    with TestClient(app) as client:
        for path in ("/numbered/seven", "/named"):
            with pytest.raises(WebSocketDisconnect) as refused, client.websocket_connect(path):
                pass
            assert refused.value.code == 1008


async def test_one_dependency_twice_in_a_request_is_one_hold(locks: LockClient) -> None:
    app = FastAPI()
    held = lock_for("order:{order}")

    async def also(lease: Annotated[Lease, held]) -> Lease:
        return lease

    @app.get("/{order}", dependencies=[held])
    async def endpoint(order: int, lease: Annotated[Lease, held], other: Annotated[Lease, Depends(also)]) -> list[Any]:
        return [lease is other, lease.holds]

    async with requests(app, locks) as client:
        assert (await client.get("/7")).json() == [True, 1]


async def test_two_dependencies_on_one_lock_are_two_holds(locks: LockClient, redis: Redis) -> None:
    app = FastAPI()

    @app.get("/{order}", dependencies=[lock_for("order:{order}")])
    async def endpoint(order: int, lease: Annotated[Lease, lock_for("order:{order}")]) -> int:
        return lease.holds

    async with requests(app, locks) as client:
        assert (await client.get("/7")).json() == 2
        assert await redis.exists("order:7") == 0


async def test_equal_values_that_print_otherwise_are_two_locks(locks: LockClient) -> None:
    app = FastAPI()

    @app.get("/{number}")
    async def endpoint(number: Decimal, at: datetime, lease: Annotated[Lease, lock_for("{number} {at}")]) -> str:
        return lease.name

    async with requests(app, locks) as client:
        numbers = [(await client.get(f"/{number}?at=2030-01-01T12:00Z")).json() for number in ("7", "7.0")]
        zones = [(await client.get("/7", params={"at": f"2030-01-01T{at}"})).json() for at in ("12:00Z", "13:00+01:00")]
    assert len(set(numbers)) == len(set(zones)) == 2


# Until when.


async def test_it_is_released_before_the_response_streams_and_before_background_tasks(
    locks: LockClient, redis: Redis
) -> None:
    app = FastAPI()
    seen: list[int] = []

    async def look() -> None:
        seen.append(await redis.exists("order"))

    @app.get("/")
    async def endpoint(lease: Annotated[Lease, lock_for("order")], tasks: BackgroundTasks) -> Response:
        async def body() -> AsyncIterator[str]:
            await look()
            yield "done"

        await look()
        tasks.add_task(look)
        return StreamingResponse(body())

    async with requests(app, locks) as client:
        assert (await client.get("/")).text == "done"
        await until(lambda: len(seen) == 3, within=30)
    assert seen == [1, 0, 0]


async def test_a_dependency_that_outlives_the_lock_may_not_take_its_lease() -> None:
    app = FastAPI()

    async def outliving(lease: Annotated[Lease, lock_for("order")]) -> AsyncIterator[Lease]:
        yield lease

    with pytest.raises(DependencyScopeError):

        @app.get("/")
        async def endpoint(lease: Annotated[Lease, Depends(outliving)]) -> None: ...


async def test_it_is_released_when_the_endpoint_fails(locks: LockClient, redis: Redis) -> None:
    app = FastAPI()

    @app.get("/")
    async def endpoint(lease: Annotated[Lease, lock_for("order")]) -> None:
        raise ZeroDivisionError

    async with requests(app, locks) as client:
        assert (await client.get("/")).status_code == 500
        assert await redis.exists("order") == 0


async def test_a_wait_is_waited_and_a_lease_is_as_long_as_asked_for(locks: LockClient, redis: Redis) -> None:
    app = FastAPI()

    @app.get("/")
    async def endpoint(lease: Annotated[Lease, lock_for("order", wait=60, lease=20)]) -> list[Any]:
        return [lease.lease, lease.watched]

    async with requests(app, locks) as client, LockClient(redis) as other:
        held = await other.lock("order").acquire()
        answer = asyncio.create_task(client.get("/"))
        await until(lambda: locks.lock("order").statistics().parked == 1, within=30)
        await held.release()
        assert (await answer).json() == [20, False]


async def test_the_response_may_come_before_the_release_is_answered(proxy: Proxy) -> None:
    app = FastAPI()

    async def endpoint(lease: Annotated[Lease, lock_for("all", release="behind")]) -> str:
        return lease.name

    app.get("/")(endpoint)
    async with client_behind(proxy) as locks, requests(app, locks) as client:
        assert (await client.get("/")).status_code == 200
        await answered(locks)
        withheld = proxy.install(Rule(script(RELEASE_CLEAN), withhold_reply()))
        assert (await client.get("/")).json() == "all"
        assert locks.statistics().pending == 1
        await withheld.caught()
        withheld.let_go()
        await answered(locks)


def test_a_dependency_with_an_unknown_word_for_release_is_refused() -> None:
    with pytest.raises(ValueError, match=r'^release must be "answered" or "behind", not'):
        lock_for("all", release="later")  # type: ignore[arg-type]
