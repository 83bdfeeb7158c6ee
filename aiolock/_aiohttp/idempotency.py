"""Requests of aiohttp that are carried out once: which part of a response is kept, and how it is repeated."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

from aiohttp import BytesPayload, web

from aiolock._aiohttp.names import request_key
from aiolock._web.idempotency import REPLAYED, Answer, BadRequestError, fingerprint, kept_headers
from aiolock._web.problem import Problem

_UNSUPPORTED = Problem(
    415, "The body is a form of several parts", "Send it in another form, such as JSON.", retry=False
)
_READ = "`idempotent` has read the body: get it by request.read(), text(), json() or post(), not from request.content"
_WHOLE = request_key("WHOLE")


def endpoint_of(request: web.Request) -> str:
    """The name of the route, which has keys of its own, as has each host, if `add_domain` routes by it."""
    resource = request.match_info.route.resource
    return f"{request.method} {_routed_host(request)}{request.path if resource is None else resource.canonical}"


def _routed_host(request: web.Request) -> str:
    """The host of the request; none if no application of it was added by `add_domain`."""
    routed = any(_has_domain(parent, app) for parent, app in pairwise(request.match_info.apps))
    return request.host.lower() if routed else ""


def _has_domain(parent: web.Application, app: web.Application) -> bool:
    infos = (resource.get_info() for resource in parent.router.resources())
    return any(info.get("app") is app and "rule" in info for info in infos)


async def fingerprint_of(request: web.Request) -> str:
    """The fingerprint of the request; aiohttp cannot read a form of several parts twice."""
    if request.content_type.startswith("multipart/"):
        raise BadRequestError(_UNSUPPORTED)
    body = await request.read()
    # This makes the handler fail, which would take the stream for an empty body.
    request.content.set_exception(RuntimeError(_READ))
    return fingerprint(request.method, request.path_qs, body)


def answer_of(request: web.Request, response: web.StreamResponse) -> Answer:
    """The part of *response* that is kept; raises if the response is not complete, or was sent already."""
    body = response.body if isinstance(response, web.Response) and not response.prepared else response
    if isinstance(body, BytesPayload):
        # aiohttp may have made it of a text. In Latin-1 each byte is a character, whatever the encoding of the text is.
        body = body.decode("latin-1").encode("latin-1")
    if not isinstance(body, bytes | bytearray | None):
        raise _not_kept(request, body)
    return Answer(response.status, kept_headers(response.headers.items()), bytes(body or b""))


@contextmanager
def whole(request: web.Request) -> Iterator[None]:
    """A block for the handler, during which `refuse_to_begin` lets no response begin."""
    request[_WHOLE] = True
    try:
        yield
    finally:
        request[_WHOLE] = False


async def refuse_to_begin(request: web.Request, response: web.StreamResponse) -> None:
    """A signal for `on_response_prepare`; disconnects the client of a handler that sends its response, and raises."""
    if not request.get(_WHOLE):
        return
    # The connection is already set to the framing of *response*, so that aiohttp would send a broken 500.
    if request.transport is not None:
        request.transport.close()
    raise _not_kept(request, response)


def _not_kept(request: web.Request, body: object) -> RuntimeError:
    return RuntimeError(
        f"{endpoint_of(request)}: its response cannot be kept, because it is a {type(body).__name__}, which is "
        "sent piece by piece, or by the handler; return a web.Response with a body, or use no `idempotent`"
    )


def response_of(answer: Answer) -> web.Response:
    """The response that repeats *answer*."""
    return web.Response(body=answer.body, status=answer.status, headers=[*answer.headers, (REPLAYED, "true")])
