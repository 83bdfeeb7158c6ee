"""Servers that belong together: a primary with replicas and sentinels, and a cluster."""

import asyncio
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any, Self

from redis import ConnectionError, Redis
from redis.backoff import ConstantBackoff
from redis.crc import key_slot
from redis.retry import Retry

from aiolock._embedded_server import Server
from tests.support.certificates import Certificates
from tests.support.network import Network, Relay
from tests.support.ports import reserved_port

NAME = "primary"
_SLOTS = 16384
_QUICK = ("--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1", "--repl-timeout", "5")


def ask(server: Server, *words: object) -> Any:
    """The server's answer to a command; tried again if the server ended the connection, as a demoted one does."""

    def once() -> Any:
        with Redis.from_url(server.url, decode_responses=True, protocol=2) as client:
            return client.execute_command(*words)

    # The retry includes the connection, which redis-py 5.0 does not try again by itself.
    return Retry(ConstantBackoff(0.02), 5, (ConnectionError,)).call_with_retry(once, lambda error: None)


def wait_until(predicate: Callable[[], bool], what: str, within: float = 30) -> None:
    """Block until the predicate holds."""
    deadline = time.monotonic() + within
    while not predicate():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within:g} s: {what}")
        time.sleep(0.02)


async def waited(predicate: Callable[[], bool], what: str) -> None:
    """Wait until the predicate holds, without blocking the loop."""
    await asyncio.to_thread(wait_until, predicate, what)


async def replicated(primary: Server, replicas: int) -> None:
    """Return when so many *replicas* have all that *primary* has; `WAIT` waits for writes of its connection."""
    _, now, _ = await asyncio.to_thread(ask, primary, "ROLE")

    def have_it() -> bool:
        _, _, known = ask(primary, "ROLE")
        return sum(int(offset) >= int(now) for _, _, offset in known) >= replicas

    await waited(have_it, f"{replicas} replicas have all that the primary has")


def role(server: Server) -> str:
    """`master` or `slave`."""
    return str(ask(server, "ROLE")[0])


def errors(server: Server, code: str) -> int:
    """The number of errors with that code that the server has answered."""
    found = ask(server, "INFO", "errorstats").get(f"errorstat_{code}", "count=0")
    # redis-py 5.0 answers with a text.
    return int(found["count"] if isinstance(found, dict) else found.removeprefix("count="))


@contextmanager
def mute() -> Iterator[socket.socket]:
    """A server that takes connections and never answers."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(100)
        listening.setblocking(False)
        yield listening


def named_by(sentinel: Server) -> dict[str, Any]:
    """The sentinel's facts about its primary."""
    state = ask(sentinel, "SENTINEL", "MASTER", NAME)
    return state if isinstance(state, dict) else dict(zip(state[::2], state[1::2], strict=True))


def cut_off(primary: Server, *replicas: Server) -> None:
    """Let no write of the primary reach these replicas any more, which are paused."""
    for replica in replicas:
        replica.pause()
    # With their old connections the replicas would still read earlier writes.
    ask(primary, "CLIENT", "KILL", "TYPE", "replica")


class _Group:
    """
    Servers that start and end together.

    With *parting* they reach each other through the relays of a network that can be parted (`part`).
    """

    def __init__(self, executable: str | None, *, parting: bool = False) -> None:
        self._executable = executable
        self._stack = ExitStack()
        self._parting = parting
        self._network: Network | None = None
        # These are the addresses in the network, and the ports for clients where the two differ, by the ordinary port.
        self._addresses: dict[int, str] = {}
        self._ports: dict[int, int] = {}

    def start(self, *options: str, config: str = "") -> Server:
        return self._stack.enter_context(Server(self._executable, options=(*_QUICK, *options), config=config))

    def port_of(self, server: Server) -> int:
        """The port for clients."""
        return self._ports.get(server.port, server.port)

    def part(self, *servers: Server) -> None:
        """From now on these servers, and clients of their ordinary ports, are cut off from all others."""
        assert self._network is not None
        self._network.part(*(self._addresses[server.port] for server in servers))

    def relays(self, count: int) -> tuple[str, list[Relay]]:
        """Relays for that many ports of one server, and the address that it sends from; none without a network."""
        if self._network is None:
            return "", []
        address = self._network.new_address()
        return address, [self._network.relay(address) for _ in range(count)]

    def announced(self, server: Server, address: str, relay: Relay) -> None:
        """Note that others reach the server, which sends from *address*, through *relay*."""
        relay.target = server.port
        self._addresses[server.port] = address
        self._ports[server.port] = relay.port

    def __enter__(self) -> Self:
        if self._parting:
            self._network = self._stack.enter_context(Network())
        try:
            self.set_up()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def set_up(self) -> None:
        raise NotImplementedError


class Replicated(_Group):
    """
    A primary with replicas; with sentinels if asked for, which promote a replica when the primary is gone.

    A *stubborn* primary cannot be demoted: it remains a primary next to the promoted one.
    """

    def __init__(
        self,
        executable: str | None,
        *,
        replicas: int = 2,
        sentinels: int = 0,
        parting: bool = False,
        stubborn: bool = False,
    ) -> None:
        super().__init__(executable, parting=parting)
        self._counts = (replicas, sentinels)
        self._config = 'rename-command REPLICAOF ""\nrename-command SLAVEOF ""\n' if stubborn else ""

    def set_up(self) -> None:
        replicas, sentinels = self._counts
        self.primary = self._start_one(config=self._config)
        where = (self.primary.host, str(self.port_of(self.primary)))
        self.replicas = [self._start_one("--replicaof", *where) for _ in range(replicas)]
        wait_until(lambda: len(ask(self.primary, "ROLE")[2]) == replicas, "the replicas are in step")
        self.sentinels = [self.start("--sentinel", config=self._watching()) for _ in range(sentinels)]
        wait_until(lambda: all(map(self._is_ready, self.sentinels)), "the sentinels know of everybody")

    def _start_one(self, *options: str, config: str = "") -> Server:
        address, relays = self.relays(1)
        for relay in relays:
            announced = ("--replica-announce-ip", "127.0.0.1", "--replica-announce-port", str(relay.port))
            options = (*options, *announced, "--bind-source-addr", address)
        server = self.start(*options, config=config)
        for relay in relays:
            self.announced(server, address, relay)
        return server

    @property
    def servers(self) -> list[Server]:
        return [self.primary, *self.replicas]

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """The addresses of the sentinels."""
        return [(sentinel.host, sentinel.port) for sentinel in self.sentinels]

    def promoted(self, old: Server) -> Server:
        """The primary in place of *old*, once the sentinels name it."""

        def found() -> list[Server]:
            address = ask(self.sentinels[0], "SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME)
            return [each for each in self.servers if str(self.port_of(each)) == address[1] and each is not old]

        wait_until(lambda: bool(found()) and role(found()[0]) == "master", "a replica is promoted", within=50)
        return found()[0]

    def _watching(self) -> str:
        return (
            f"sentinel monitor {NAME} {self.primary.host} {self.port_of(self.primary)} 2\n"
            f"sentinel down-after-milliseconds {NAME} 1000\n"
            # Twice that time passes after an election without a winner.
            f"sentinel failover-timeout {NAME} 3000\n"
        )

    def _is_ready(self, sentinel: Server) -> bool:
        facts = named_by(sentinel)
        others = int(facts["num-other-sentinels"])
        return others == len(self.addresses) - 1 and int(facts["num-slaves"]) == len(self.replicas)


class ClusterOf(_Group):
    """
    A cluster of three primaries, each with that many replicas.

    With *certificates* the servers speak TLS with each other, and with clients on further ports (`port_of`); the
    ordinary ports are for `ask`.
    """

    def __init__(
        self,
        executable: str | None,
        *,
        replicas: int = 0,
        certificates: Certificates | None = None,
        parting: bool = False,
    ) -> None:
        super().__init__(executable, parting=parting)
        self._count = replicas
        self._certificates = certificates
        # Servers talk to each other on these ports, by the ordinary one.
        self._buses: dict[int, int] = {}

    def set_up(self) -> None:
        self.primaries = [self._start_node() for _ in range(3)]
        self.replicas = [self._start_node() for _ in range(3 * self._count)]
        for server in self.servers[1:]:
            known = self.primaries[0]
            ask(server, "CLUSTER", "MEET", known.host, self.port_of(known), self._buses[known.port])
        for number, primary in enumerate(self.primaries):
            first, end = number * _SLOTS // 3, (number + 1) * _SLOTS // 3
            ask(primary, "CLUSTER", "ADDSLOTS", *range(first, end))
        wait_until(lambda: all(map(self._knows_all, self.servers)), "everybody knows everybody")
        for number, replica in enumerate(self.replicas):
            ask(replica, "CLUSTER", "REPLICATE", self.id_of(self.primaries[number % 3]))
        wait_until(lambda: all(map(self._is_ready, self.servers)), "the cluster is up")
        # A replica without a known offset is left out of a server's answer about the slots.
        wait_until(lambda: all(map(self._names_all_replicas, self.primaries)), "the replicas are named")
        # No replica can take over for a busy server that looks dead.
        if not self.replicas:
            for primary in self.primaries:
                ask(primary, "CONFIG", "SET", "cluster-node-timeout", 60_000)

    @property
    def servers(self) -> list[Server]:
        return [*self.primaries, *self.replicas]

    def _start_node(self) -> Server:
        # By default it is 10,000 above the other, which may be beyond the last port.
        bus = self._stack.enter_context(reserved_port())
        options = ["--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--cluster-port", str(bus)]
        secure = None if self._certificates is None else self._stack.enter_context(reserved_port())
        if self._certificates is not None and secure is not None:
            options += [*self._certificates.options(secure), "--tls-cluster", "yes", "--tls-replication", "yes"]
        address, relays = self.relays(2)
        if relays:
            ports = [f"--cluster-announce-port {relays[0].port}", f"--cluster-announce-bus-port {relays[1].port}"]
            options += f"--bind-source-addr {address} --cluster-announce-ip 127.0.0.1 {' '.join(ports)}".split()
        server = self.start(*options, "--cluster-require-full-coverage", "no")
        self._buses[server.port] = bus
        if secure is not None:
            self._ports[server.port] = secure
        if relays:
            self.announced(server, address, relays[0])
            relays[1].target, self._buses[server.port] = bus, relays[1].port
        return server

    def id_of(self, server: Server) -> str:
        return str(ask(server, "CLUSTER", "MYID"))

    def owner_of(self, name: str, among: Sequence[Server] | None = None) -> Server:
        """The owner of the slot of the lock *name*, according to the first server that is asked."""
        slot = key_slot(name.encode())
        asked = (among or self.servers)[0]
        with Redis.from_url(asked.url, protocol=2) as client:
            for first, last, (_, port, *_), *_ in client.execute_command("CLUSTER SLOTS", **{"raw": True}):
                if first <= slot <= last:
                    return next(each for each in self.servers if port in (each.port, self.port_of(each)))
        raise AssertionError(f"nobody owns slot {slot}")

    def _names_all_replicas(self, server: Server) -> bool:
        return all(len(replicas) == self._count for _, _, _, *replicas in ask(server, "CLUSTER", "SLOTS"))

    def _knows_all(self, server: Server) -> bool:
        return len(ask(server, "CLUSTER", "NODES").splitlines()) == len(self.servers)

    def _is_ready(self, server: Server) -> bool:
        info = ask(server, "CLUSTER", "INFO")
        facts = info if isinstance(info, dict) else dict(line.split(":") for line in info.split())
        in_step = server in self.primaries or ask(server, "ROLE")[3] == "connected"
        return facts["cluster_state"] == "ok" and in_step
