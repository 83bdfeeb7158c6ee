"""
A server: RESP in, RESP out, one command after the other; scripts are the real Lua.

It can crash and come back with all its data, with less, or with none; it can stand still; its clock can step; and it
can refuse: some errors refuse every command (LOADING, BUSY, NOAUTH), some only writes (OOM, READONLY, MISCONF).
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import hiredis

from tests.simulation.redis_data import COMMANDS as DATA_COMMANDS
from tests.simulation.redis_data import Data, RefusedError, Snapshot, Status
from tests.simulation.redis_lua import ERROR, NO_VALUE, STATUS, TABLE, Lua
from tests.simulation.script_calls import Ran
from tests.simulation.world import EPOCH, World

if TYPE_CHECKING:
    from tests.simulation.network import Link
    from tests.simulation.replica import Replica

_GROWS = frozenset({b"SET", b"INCR", b"INCRBY", b"DECRBY", b"HSET", b"HINCRBY", b"ZADD"})
_SHRINKS = frozenset({b"DEL", b"UNLINK", b"PEXPIRE", b"PERSIST", b"HDEL", b"ZREM", b"ZREMRANGEBYSCORE", b"ZPOPMIN"})
WRITES = _GROWS | _SHRINKS
_FOR_SCRIPTS = {name: (command, name in WRITES) for name, command in DATA_COMMANDS.items()}
# The answer to a command of a script in a cluster, one of whose keys has not moved yet, or has moved away.
NOT_HERE = b"ERR Script attempted to access a non local key in a cluster node"
# Commands whose times differ by fewer microseconds came at once: each has a time of its own, in their order.
_AT_ONCE = 1000

# Errors that refuse every command, and errors that refuse a script's first write.
REFUSES_ALL = {
    "LOADING": "LOADING Redis is loading the dataset in memory",
    "BUSY": "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
    "NOAUTH": "NOAUTH Authentication required.",
    "CLUSTERDOWN": "CLUSTERDOWN The cluster is down",
}
REFUSES_WRITES = {
    "OOM": "OOM command not allowed when used memory > 'maxmemory'.",
    "READONLY": "READONLY You can't write against a read only replica.",
    "MISCONF": "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
    "NOREPLICAS": "NOREPLICAS Not enough good replicas to write.",
}

_lua = Lua()
# Every script that any server was sent, by digest; compiled scripts and their names outlive a seed.
_sources: dict[bytes, bytes] = {}
_digests: dict[bytes, bytes] = {}
_names: dict[bytes, str] = {}


class Watcher(Protocol):
    """The object that hears of every script and restart of a server."""

    def script_ran(self, server: "Server", ran: Ran) -> None:
        """A script has run; ``server.data.touched`` names the keys that it wrote to."""

    def restarted(self, server: "Server", *, lost: bool) -> None:
        """The server is up again; *lost*: with less data than it had."""


class Session:
    """The server's state of one connection."""

    def __init__(self, link: "Link") -> None:
        self.link = link
        self.reader = hiredis.Reader()
        self.channels: dict[bytes, None] = {}
        self.is_resp3 = False
        # Whether the server may serve the next command although its slot is still moving here.
        self.is_asking = False
        # The version of the data after the last write of this connection.
        self.wrote = 0
        # While the connection stands in WAIT: the version that it waits for, and the number of that wait.
        self.waits_for: tuple[int, int] | None = None


class Server:
    recorder: ClassVar[Callable[[bytes, int, list[bytes]], None] | None] = None
    """Called with every script that any server is sent: its source, the number of keys, and the arguments."""
    mode: ClassVar[bytes] = b"standalone"

    def __init__(self, world: World, name: str, watcher: Watcher | None = None, *, port: int = 6379) -> None:
        self.world, self.name = world, name
        self.address = f"{name}:{port}"
        self.watcher = watcher
        self.is_up = True
        # Seconds that its clock is ahead.
        self.wall = 0.0
        self.refusal: str | None = None
        self.data = Data(lambda: self._now // 1000)
        self.sessions: dict[Session, None] = {}
        self.replica: Replica | None = None
        # Whether this server replicates another one, and runs no scripts.
        self.is_replica = False
        self.known_scripts: dict[bytes, None] = {}
        self.commands = 0
        # The subscriptions, one for each listener.
        self.messages = 0
        self._subscribers: dict[bytes, dict[Session, None]] = {}
        self._postponed: list[tuple[Session, bytes]] | None = None
        self._script_wrote = False
        self._waits = 0
        self._lives = 0
        self._begin_life()
        self._now = 0
        self.tick()

    def _begin_life(self) -> None:
        self._lives += 1
        self.run_id = b"%s%038d" % (self.name.encode(), self._lives)

    def tick(self) -> None:
        """A command begins: while it runs, the clock stands; from one to the next it goes on."""
        now = int((EPOCH + self.world.now + self.wall) * 1e6)
        self._now = self._now + 1 if 0 <= self._now - now < _AT_ONCE else now

    @property
    def microseconds(self) -> int:
        """The server's clock."""
        return self._now

    @property
    def is_stalled(self) -> bool:
        return self._postponed is not None

    # Connections.

    def accept(self, link: "Link") -> Session:
        session = Session(link)
        self.sessions[session] = None
        if not self.is_up:
            self.world.after(0, self._refuse_connection, session)
        return session

    def _refuse_connection(self, session: Session) -> None:
        session.link.reset(forget=False)

    def forget(self, session: Session) -> None:
        """The connection of *session* is closed."""
        self.sessions.pop(session, None)
        for channel in session.channels:
            self._subscribers[channel].pop(session, None)

    def receive(self, session: Session, data: bytes) -> None:
        if self._postponed is not None:
            self._postponed.append((session, data))
            return
        session.reader.feed(data)
        self._run_commands(session)

    def _run_commands(self, session: Session) -> None:
        replies = []
        while session.waits_for is None and (command := session.reader.gets()) is not False:
            self.tick()
            self.commands += 1
            reply = self._answer(session, command)
            if session.waits_for is None:
                replies.append(reply)
        if replies:
            session.link.reply(b"".join(replies))

    # Faults.

    def stall(self, seconds: float) -> None:
        """Stand still: commands are run *seconds* later."""
        if self._postponed is None:
            self._postponed = []
            self.world.trace(self.name, f"stands still for {seconds:.3f} s")
            self.world.after(seconds, self._go_on)

    def _go_on(self) -> None:
        postponed, self._postponed = self._postponed or [], None
        for session, data in postponed:
            if session in self.sessions and self.is_up:
                self.receive(session, data)

    def crash(self) -> None:
        self.world.trace(self.name, "down")
        self.is_up = False
        self._postponed = None
        for session in list(self.sessions):
            session.link.reset(forget=True)

    def restart(self, snapshot: Snapshot | None = None) -> None:
        """Come back, with the data of before or with those of a *snapshot*."""
        self.world.trace(self.name, "up" if snapshot is None else "up, with other data")
        self.tick()
        if snapshot is not None:
            self.data.restore(snapshot)
        if self.replica is not None:
            self.replica.start_over()
        self.known_scripts.clear()
        self._begin_life()
        self.is_up = True
        if self.watcher is not None:
            self.watcher.restarted(self, lost=snapshot is not None)

    # Replication.

    def take_over(self, data: Snapshot) -> None:
        """A replica that had these *data* becomes a primary."""
        self.world.trace(self.name, "is a primary now")
        self.tick()
        self.data.restore(data)
        self.is_replica = False
        if self.watcher is not None:
            self.watcher.restarted(self, lost=True)

    def become_replica(self) -> None:
        """A primary is demoted; its connections are closed."""
        self.world.trace(self.name, "is a replica now")
        self.is_replica = True
        for session in list(self.sessions):
            session.link.close_from_server()

    def replicated(self, version: int) -> None:
        """The replica has every write up to *version*."""
        for session in list(self.sessions):
            if session.waits_for is not None and session.waits_for[0] <= version:
                self._end_wait(session, session.waits_for[1], 1)

    def _end_wait(self, session: Session, number: int, acknowledged: int) -> None:
        if session in self.sessions and session.waits_for is not None and session.waits_for[1] == number:
            session.waits_for = None
            session.link.reply(encoded(acknowledged))
            self._run_commands(session)

    # Commands.

    def _answer(self, session: Session, command: list[bytes]) -> bytes:
        name, args = command[0].upper(), command[1:]
        if self.refusal in REFUSES_ALL and name != b"HELLO":
            return b"-%s\r\n" % REFUSES_ALL[self.refusal].encode()
        if name in (b"EVAL", b"EVALSHA"):
            return self._answer_script(session, name, args)
        try:
            run = getattr(self, f"do_{name.decode().lower()}", None)
            return encoded(self.data.run(name, args) if run is None else run(session, *args), maps=session.is_resp3)
        except RefusedError as error:
            return b"-%s\r\n" % str(error).encode()

    def _answer_script(self, session: Session, name: bytes, args: list[bytes]) -> bytes:
        if self.is_replica:
            return b"-%s\r\n" % REFUSES_WRITES["READONLY"].encode()
        source = self._source(name, args[0])
        if source is None:
            return b"-NOSCRIPT No matching script. Please use EVAL.\r\n"
        keys, args = int(args[1]), args[2:]
        if Server.recorder is not None:
            Server.recorder(source, keys, args)
        reply = self.run_script(source, keys, args)
        if self.replica is not None and self.data.touched:
            session.wrote = self.replica.write()
        if reply.startswith(b"-ERR") and not reply.startswith(b"-" + NOT_HERE):
            self.world.violation("script", f"{script_name(source)} {args!r}: {reply!r}")
        if self.world.lines is not None:
            words = " ".join(each.decode(errors="replace")[-60:] for each in args)
            self.world.trace(self.name, f"{script_name(source)}({words}) -> {reply!r}")
        if self.watcher is not None:
            self.watcher.script_ran(self, Ran(script_name(source), args, reply))
        return reply

    def run_script(self, source: bytes, keys: int, args: list[bytes]) -> bytes:
        """The encoded reply of a script; ``data.touched`` has the keys that it wrote to."""
        self.data.touched.clear()
        self._script_wrote = False
        return _lua.run(self, source, keys, args)

    def _source(self, name: bytes, given: bytes) -> bytes | None:
        """The source of the script that a command names by itself or by its digest."""
        if name == b"EVALSHA":
            return _sources[given] if given in self.known_scripts else None
        digest = _digests.get(given)
        if digest is None:
            digest = _digests[given] = hashlib.sha1(given).hexdigest().encode()
            _sources[digest] = given
        self.known_scripts[digest] = None
        return given

    def from_script(self, name: bytes, args: Sequence[bytes]) -> Any:
        known = _FOR_SCRIPTS.get(name) or _FOR_SCRIPTS.get(name.upper())
        if known is None:
            return self._answer_to_script(name.upper(), args)
        command, writes = known
        try:
            if writes:
                self._refuse_write(name.upper())
            value = command(self.data, *args)
        except RefusedError as error:
            return NO_VALUE, ERROR, str(error).encode()
        kind = type(value)
        return value if kind is int or kind is bytes else _for_lua(value)

    def _answer_to_script(self, name: bytes, args: Sequence[bytes]) -> Any:
        """The answer to a command that does not concern keys."""
        if name == b"TIME":
            return NO_VALUE, TABLE, b"%d" % (self._now // 1000000), b"%d" % (self._now % 1000000)
        if name in (b"PUBLISH", b"SPUBLISH"):
            return self._publish(*args)
        if name == b"INFO":
            return b"# Server\r\nrun_id:%s\r\n" % self.run_id
        raise KeyError(name)

    def _refuse_write(self, name: bytes) -> None:
        """Let a script that has already written run to its end."""
        if self.refusal in REFUSES_WRITES and not self._script_wrote and (self.refusal != "OOM" or name in _GROWS):
            raise RefusedError(REFUSES_WRITES[self.refusal])
        self._script_wrote = True

    def _publish(self, channel: bytes, message: bytes) -> int:
        listeners = list(self._subscribers.get(channel, ()))
        self.messages += len(listeners)
        for session in listeners:
            session.link.reply(encoded([b"message", channel, message]))
        return len(listeners)

    def do_hello(self, session: Session, protocol: bytes) -> dict[bytes, Any]:
        session.is_resp3 = protocol == b"3"
        return {b"server": b"redis", b"version": b"7.2.0", b"proto": int(protocol), b"mode": self.mode}

    def do_client(self, session: Session, what: bytes, *args: bytes) -> Any:
        return (
            b"id=1 addr=1.1.1.1:1 laddr=%s name=" % self.address.encode() if what.upper() == b"INFO" else Status(b"OK")
        )

    def do_ping(self, session: Session, *args: bytes) -> Any:
        return [b"pong", b""] if session.channels else Status(b"PONG")

    def do_subscribe(self, session: Session, channel: bytes) -> list[Any]:
        session.channels[channel] = None
        self._subscribers.setdefault(channel, {})[session] = None
        return [b"subscribe", channel, len(session.channels)]

    def do_unsubscribe(self, session: Session, channel: bytes) -> list[Any]:
        session.channels.pop(channel, None)
        self._subscribers.get(channel, {}).pop(session, None)
        return [b"unsubscribe", channel, len(session.channels)]

    def do_script(self, session: Session, what: bytes, source: bytes) -> bytes:
        self._source(b"EVAL", source)
        return _digests[source]

    def do_wait(self, session: Session, replicas: bytes, milliseconds: bytes) -> int:
        if self.replica is None:
            return 0
        if self.replica.version >= session.wrote:
            return 1
        self._waits += 1
        session.waits_for = (session.wrote, self._waits)
        self.world.after(int(milliseconds) / 1000, self._end_wait, session, self._waits, 0)
        return 0

    def do_role(self, session: Session) -> list[Any]:
        if self.is_replica:
            return [b"slave", b"another", 6379, b"connected", 0]
        return [b"master", 0, [] if self.replica is None else [[b"r", b"6379", b"0"]]]


def _for_lua(value: Any) -> Any:
    if value is None:
        return False
    if isinstance(value, Status):
        return NO_VALUE, STATUS, bytes(value)
    return NO_VALUE, TABLE, *(False if each is None else each for each in value)


def script_name(source: bytes) -> str:
    """The name of the script's file, with a star after it for several calls as one."""
    if not _names:
        from aiolock import _scripts

        for script in _scripts._ALL:
            _names[script.source.encode()] = script.files[-1]
            _names[script.bundle.source.encode()] = f"{script.files[-1]}*"
        _names[_scripts.HAND_OFF.source.encode()] = _scripts.HAND_OFF.files[-1]
    return _names.get(source, "?")


def encoded(value: Any, *, maps: bool = False) -> bytes:
    """The encoded value; *maps*: in the form of RESP3."""
    if value is None:
        return b"$-1\r\n"
    if isinstance(value, dict):
        parts = [encoded(each, maps=maps) for pair in value.items() for each in pair]
        return b"%s%d\r\n%s" % (*((b"%", len(value)) if maps else (b"*", len(parts))), b"".join(parts))
    if isinstance(value, list):
        return b"*%d\r\n%s" % (len(value), b"".join(encoded(each, maps=maps) for each in value))
    if isinstance(value, Status):
        return b"+%s\r\n" % bytes(value)
    if isinstance(value, bytes):
        return b"$%d\r\n%s\r\n" % (len(value), value)
    return b":%d\r\n" % value
