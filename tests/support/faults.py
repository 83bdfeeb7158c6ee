"""The faults of a proxy: a rule chooses the requests, an action is the fault.

A rule remembers the requests it was applied to, so a test waits for the fault itself (`await rule.caught()`) instead of
sleeping.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from tests.support.resp import Frames

if TYPE_CHECKING:
    from tests.support.proxy import Connection

ALWAYS = sys.maxsize
_CHUNK = 65536


@dataclass(frozen=True, slots=True)
class Request:
    """One command of one client, as it arrived at the proxy."""

    connection: int
    args: tuple[bytes, ...]
    at: float
    raw: bytes = field(repr=False)

    @property
    def name(self) -> bytes:
        """The command's name in capitals."""
        return self.args[0].upper()


Predicate = Callable[[Request], bool]


class Script(Protocol):
    """The properties of a Lua script by which its calls are recognised."""

    @property
    def source(self) -> str: ...
    @property
    def sha(self) -> str: ...


def script(*wanted: Script) -> Predicate:
    """Calls of one of these scripts, by its sha or by its source, alone or several as one."""
    bundles = [bundle for each in wanted if (bundle := getattr(each, "bundle", None)) is not None]
    calls = set[tuple[bytes, bytes]]().union(*map(_calls, (*wanted, *bundles)))
    return lambda request: (request.name, b"".join(request.args[1:2])) in calls


def _calls(wanted: Script) -> set[tuple[bytes, bytes]]:
    return {(b"EVALSHA", wanted.sha.encode()), (b"EVAL", wanted.source.encode())}


def command(*words: bytes) -> Predicate:
    """Commands that begin with these words, in any case: `command(b"SUBSCRIBE")`, `command(b"CLIENT", b"SETINFO")`."""
    wanted = tuple(word.upper() for word in words)
    return lambda request: tuple(word.upper() for word in request.args[: len(wanted)]) == wanted


def anything(request: Request) -> bool:
    """Every request."""
    return True


class Log:
    """Requests in their order, and a way to wait for those that have not come yet."""

    def __init__(self) -> None:
        self.entries: list[Request] = []
        self._watchers: list[_Watcher] = []

    def add(self, request: Request) -> None:
        """Note a request and wake the waiters for it."""
        self.entries.append(request)
        for watcher in self._watchers:
            watcher.see(request)

    async def saw(self, predicate: Predicate, count: int, within: float) -> None:
        """Return when that many matching requests have been noted, from the very first on."""
        watcher = _Watcher(predicate, count, asyncio.get_running_loop().create_future())
        for request in self.entries:
            watcher.see(request)
        self._watchers.append(watcher)
        try:
            await asyncio.wait_for(watcher.done, within)
        except TimeoutError:
            missing = f"{watcher.missing} of {count} requests did not come within {within:g} s"
            raise AssertionError(f"{missing}; these came: {[entry.args[:2] for entry in self.entries]}") from None
        finally:
            self._watchers.remove(watcher)


@dataclass(slots=True, eq=False)
class _Watcher:
    predicate: Predicate
    missing: int
    done: asyncio.Future[None]

    def see(self, request: Request) -> None:
        if not self.done.done() and self.predicate(request):
            self.missing -= 1
            if self.missing <= 0:
                self.done.set_result(None)


class Rule:
    """Applies an action to the next `times` requests that match."""

    def __init__(self, matches: Predicate, action: Action, times: int = 1) -> None:
        self.matches = matches
        self.action = action
        self.released = asyncio.Event()
        self._left = times
        self._caught = Log()
        self._held: deque[tuple[Request, tuple[str, int]]] = deque()

    @property
    def requests(self) -> list[Request]:
        """The requests that met the fault."""
        return self._caught.entries

    async def caught(self, count: int = 1, within: float = 5.0) -> None:
        """Return when the fault has happened that many times."""
        await self._caught.saw(anything, count, within)

    async def deliver(self) -> bytes:
        """Send the oldest held request to the server now, on a connection of its own; return the reply as a frame."""
        request, (host, port) = self._held.popleft()
        reader, writer = await asyncio.open_connection(host, port)
        try:
            writer.write(request.raw)
            return await _one_frame(reader)
        finally:
            writer.close()
            await writer.wait_closed()

    def let_go(self) -> None:
        """Hand over the replies that were withheld; later ones pass at once."""
        self.released.set()

    def take(self, request: Request) -> bool:
        """Whether the rule applies to this request, which then counts as one of `times`."""
        taken = self._left > 0 and self.matches(request)
        self._left -= taken
        return taken

    def give_back(self, times: int) -> None:
        """Take that many requests back, which the fault will not hit: they do not count."""
        self._left += times

    def note(self, request: Request) -> None:
        """Note that the fault has happened to this request."""
        self._caught.add(request)

    def hold(self, request: Request, host: str, port: int) -> None:
        """Keep a request for `deliver`."""
        self._held.append((request, (host, port)))


async def _one_frame(reader: asyncio.StreamReader) -> bytes:
    frames = Frames()
    while chunk := await reader.read(_CHUNK):
        for frame in frames.feed(chunk):
            return frame
    raise ConnectionResetError("the server closed the connection instead of answering")


class Action:
    """Does nothing; each subclass causes a fault on the way to the server or on the way back."""

    async def on_request(self, link: Connection, rule: Rule, request: Request) -> None:
        """The request arrived from the client."""
        link.forward(request, rule)

    async def on_reply(self, link: Connection, rule: Rule, request: Request, reply: bytes) -> None:
        """The server has executed the request; this is its answer."""
        link.answer(reply)


@dataclass(frozen=True)
class _DropReply(Action):
    reset: bool

    async def on_reply(self, link: Connection, rule: Rule, request: Request, reply: bytes) -> None:
        await link.flush_replies()
        if self.reset:
            link.reset()
            # Later requests get no reply that could be dropped.
            rule.give_back(link.unanswered(rule))
        else:
            link.mute()
        rule.note(request)


@dataclass(frozen=True)
class _Hold(Action):
    reset: bool

    async def on_request(self, link: Connection, rule: Rule, request: Request) -> None:
        rule.hold(request, *link.target)
        link.end(link.reset if self.reset else link.mute)
        rule.note(request)


@dataclass(frozen=True)
class _Delay(Action):
    seconds: float

    async def on_request(self, link: Connection, rule: Rule, request: Request) -> None:
        await link.flush_requests()
        rule.note(request)
        await asyncio.sleep(self.seconds)
        link.forward(request, None)


@dataclass(frozen=True)
class _Refuse(Action):
    error: bytes

    async def on_request(self, link: Connection, rule: Rule, request: Request) -> None:
        link.forward(replace(request, raw=b"*1\r\n$4\r\nPING\r\n"), rule)

    async def on_reply(self, link: Connection, rule: Rule, request: Request, reply: bytes) -> None:
        link.answer(b"-" + self.error + b"\r\n")
        rule.note(request)


class _Reset(Action):
    async def on_request(self, link: Connection, rule: Rule, request: Request) -> None:
        link.end(link.reset)
        rule.note(request)


class _WithholdReply(Action):
    async def on_reply(self, link: Connection, rule: Rule, request: Request, reply: bytes) -> None:
        await link.flush_replies()
        rule.note(request)
        await rule.released.wait()
        link.answer(reply)


@dataclass(frozen=True)
class _SlowReply(Action):
    seconds: float

    async def on_reply(self, link: Connection, rule: Rule, request: Request, reply: bytes) -> None:
        await link.flush_replies()
        rule.note(request)
        await asyncio.sleep(self.seconds)
        link.answer(reply)


def drop_reply(*, reset: bool = True) -> Action:
    """Let the server execute the request, swallow the answer, then reset the client's connection.

    With `reset=False` the connection stays open and silent for good; later requests of the client on it are executed.
    """
    return _DropReply(reset)


def hold(*, reset: bool = True) -> Action:
    """Keep the request for `rule.deliver()`, and reset the client's connection so that it sends again.

    With `reset=False` the connection stays open and silent. Either way nothing that follows on it reaches the server.
    """
    return _Hold(reset)


def delay(seconds: float) -> Action:
    """Delay the request, and all later ones on its connection, by that many seconds."""
    return _Delay(seconds)


def slow_reply(seconds: float) -> Action:
    """Delay the answer, and all later ones on this connection, by that many seconds."""
    return _SlowReply(seconds)


def refuse(error: bytes) -> Action:
    """Answer with this *error*, in the turn of the request, which does not reach the server."""
    return _Refuse(error)


def reset() -> Action:
    """Reset the client's connection instead of forwarding the request."""
    return _Reset()


def withhold_reply() -> Action:
    """
    Let the server execute the request, and withhold this and later answers on its connection until `rule.let_go()`.
    """
    return _WithholdReply()
