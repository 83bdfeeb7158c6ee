"""
The model of a server beside a real one: the same random calls of every script, in the same random states.

    python -m tests.simulation.compare --calls 100000 --port 6379

The server at the port is emptied. Without a port there is an embedded Valkey.

The calls are taken from simulated runs and mixed: each argument is one that some call of that script had in this place.
Between them keys are written, shortened and deleted at random, so that scripts meet states that no run brings about.
Time passes, too, so that keys and leases end. Every reply, every value and every time to live must be exactly the same:
both servers have the model's clock (`clock.lua`), and no real time is involved. A seed is the same calls everywhere.
"""

import argparse
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hiredis import Reader
from redis import Redis
from redis.exceptions import ResponseError

from tests.simulation import world as worlds

worlds.install()

from aiolock import _scripts  # noqa: E402
from aiolock._embedded_server import Server as EmbeddedServer  # noqa: E402
from tests.simulation.acts import ADMINISTRATION  # noqa: E402
from tests.simulation.profiles import PROFILES  # noqa: E402
from tests.simulation.redis_data import SortedSet  # noqa: E402
from tests.simulation.scenario import Choice, simulate  # noqa: E402
from tests.simulation.server import Server, script_name  # noqa: E402

_BATCH = 20
# Thirty years, in seconds: a real server's clock has not come so far, so that no key expires by it.
_FAR = 30 * 365 * 86400.0
# Seconds that may pass between two calls.
_STEPS = (0.0, 0.0, 0.00001, 0.0007, 0.02, 0.6, 12.0)
_CLOCK = (Path(__file__).parent / "clock.lua").read_text()
_COMMAND = b"return redis.call(ARGV[1], KEYS[1], unpack(ARGV, 2))"
_NOTHING = b"return 1"


@dataclass
class Traffic:
    """Calls of one script: how many keys, and the arguments of each call."""

    source: bytes
    keys: int
    calls: list[list[bytes]] = field(default_factory=list)

    def mixed(self, draw: random.Random) -> list[bytes]:
        """A call with the length of a real one; each argument is one that a real call has in this place."""
        model = draw.choice(self.calls)
        alike = [call for call in self.calls if len(call) == len(model)]
        keys = model[: self.keys]
        return keys + [draw.choice(alike)[place] for place in range(self.keys, len(model))]


def recorded(seeds: range) -> dict[bytes, Traffic]:
    """The arguments of scripts in simulated runs, by source and number of keys."""
    found: dict[tuple[bytes, int], Traffic] = {}

    def record(source: bytes, keys: int, args: list[bytes]) -> None:
        traffic = found.setdefault((source, keys), Traffic(source, keys))
        if len(traffic.calls) < 300:
            traffic.calls.append(args)

    Server.recorder = record
    for seed in seeds:
        simulate(Choice(seed, profile=list(PROFILES)[seed % len(PROFILES)]))
    simulate(Choice(0, "calm", on="one"), acts=ADMINISTRATION)
    Server.recorder = None
    return {b"%s %d" % (source, keys): traffic for (source, keys), traffic in found.items()}


class Pair:
    """A model and a real server, which get the same calls, and have the same clock; the real one gets many at once."""

    def __init__(self, real: Redis) -> None:
        self.real = real
        self.world = worlds.World(0)
        self.world.now = _FAR
        self.model = Server(self.world, "model")
        info: Any = real.info("server")
        self.model.run_id = info["run_id"].encode()
        # The fields of a hash are in the order in which they were set, as in the model, however long they are.
        real.config_set("hash-max-listpack-value", 1_000_000)
        real.config_set("hash-max-listpack-entries", 1_000_000)
        self._digests: dict[bytes, str] = {}
        # The calls for the real server, and the replies of the model to them.
        self._calls = real.pipeline(transaction=False)
        self._replies: list[Any] = []
        self.start_over()

    def start_over(self) -> None:
        self.real.flushall()
        self.model.data.restore(({}, {}))
        self.history: list[str] = []

    def pass_time(self, seconds: float) -> None:
        self.world.now += seconds
        self.model.tick()

    def run(self, source: bytes, keys: int, args: list[bytes]) -> None:
        """Run a script on the model now, and on the real server before the next look for a difference."""
        self.history.append(f"{self.world.now - _FAR:.6f} {script_name(source)} {keys} {args!r}")
        self._call(source, keys, args)
        self._replies.append(_decoded(self.model.run_script(source, keys, args)))

    def _call(self, source: bytes, keys: int, args: Sequence[bytes]) -> None:
        digest = self._digests.get(source)
        if digest is None:
            digest = self._digests[source] = self.real.script_load(_CLOCK + source.decode())
        self._calls.evalsha(digest, keys, *args, self.model.microseconds)

    def write(self, name: bytes, key: bytes, *args: bytes) -> None:
        """Write to both."""
        self.run(_COMMAND, 1, [key, name, *args])

    def difference(self) -> str | None:
        """The first difference between the replies since the last look, or between the keys of both."""
        real_replies, model_replies, self._replies = self._calls.execute(raise_on_error=False), self._replies, []
        calls = self.history[-len(model_replies) :]
        for call, real, model in zip(calls, real_replies, model_replies, strict=True):
            if not _same(real, model):
                return f"{call}: real {real!r}, model {model!r}"
        return self._difference_of_keys()

    def _difference_of_keys(self) -> str | None:
        for key in list(self.model.data.values):
            self.model.data.find(key)
        names: Any = self.real.keys()
        self._call(_NOTHING, len(names), names)
        self._calls.keys()
        names = self._calls.execute()[-1]
        if set(names) != set(self.model.data.values):
            return f"real keys {sorted(names)}, model keys {sorted(self.model.data.values)}"
        for key, real in _contents(self.real, names).items():
            model = self.model.data.values[key], self.model.data.expires.get(key, -1)
            if real != model:
                return f"{key!r}: real {real!r}, model {model!r}"
        return None


def _contents(real: Redis, keys: list[Any]) -> dict[bytes, tuple[Any, int]]:
    """The value of each key, and the time at which it ends."""
    pipeline = real.pipeline(transaction=False)
    for key in keys:
        pipeline.type(key)
    kinds = pipeline.execute()
    for key, kind in zip(keys, kinds, strict=True):
        if kind == b"hash":
            pipeline.hgetall(key)
        elif kind == b"zset":
            pipeline.zrange(key, 0, -1, withscores=True)
        else:
            pipeline.get(key)
        pipeline.pexpiretime(key)
    found = pipeline.execute()
    values = [SortedSet(value) if kind == b"zset" else value for kind, value in zip(kinds, found[::2], strict=True)]
    return dict(zip(keys, zip(values, found[1::2], strict=True), strict=True))


def _decoded(reply: bytes) -> Any:
    reader = Reader(replyError=ResponseError)
    reader.feed(reply)
    return reader.gets()


def _same(real: Any, model: Any) -> bool:
    """Whether two replies are the same; of errors, whether both are there."""
    if isinstance(real, ResponseError) or isinstance(model, ResponseError):
        return isinstance(real, ResponseError) and isinstance(model, ResponseError)
    if isinstance(real, list):
        return isinstance(model, list) and len(real) == len(model) and all(map(_same, real, model))
    return bool(real == model)


def disturb(pair: Pair, draw: random.Random, keys: list[bytes], values: list[bytes]) -> None:
    """Write something to a key, as no script would."""
    key, value = draw.choice(keys), draw.choice(values)
    now = pair.model.microseconds // 1000
    command = draw.choice(
        [
            (b"DEL", key),
            (b"SET", key, draw.choice([b"0", b"2", b"-1", b"text"])),
            (b"HSET", key, value, draw.choice([b"1", b"2", b"read", b"write"])),
            (b"ZADD", key, b"%d" % (now + draw.choice([-100_000, 100_000])), value),
            (b"ZADD", key, b"%d" % (now * 1000 + draw.choice([-(10**9), 10**9])), b"token"),
            (b"PEXPIRE", key, b"%d" % draw.choice([-5, 0, 300, 30_000, 100_000])),
            (b"PERSIST", key),
        ]
    )
    pair.write(*command)


def compare(pair: Pair, traffic: list[Traffic], calls: int, seed: int) -> dict[str, int]:
    """Make calls; returns the number of calls of each script. Exits at the first difference."""
    draw = random.Random(f"{seed} compare")
    keys = list(dict.fromkeys(key for each in traffic for call in each.calls[:20] for key in call[: each.keys]))
    values = list(dict.fromkeys(value for each in traffic for call in each.calls[:5] for value in call[each.keys :]))
    made: dict[str, int] = {}
    for number in range(1, calls + 1):
        pair.pass_time(draw.choice(_STEPS) * draw.random())
        if draw.random() < 0.1:
            disturb(pair, draw, keys, values)
        each = draw.choice(traffic)
        pair.run(each.source, each.keys, each.mixed(draw))
        name = script_name(each.source)
        made[name] = made.get(name, 0) + 1
        if number % _BATCH and number != calls:
            continue
        if (different := pair.difference()) is not None:
            print("\n".join(pair.history[-2 * _BATCH :]))
            raise SystemExit(f"within {_BATCH} calls before call {number}: {different}")
        if number % (10 * _BATCH) == 0:
            pair.start_over()
    return made


@contextmanager
def _port(given: int | None) -> Iterator[int]:
    if given is not None:
        yield given
        return
    with EmbeddedServer() as server:
        yield server.port


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.compare", description=__doc__)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--port", type=int, help="of the real server")
    options = parser.parse_args()
    traffic = list(recorded(range(60)).values())
    worlds.uninstall()
    with _port(options.port) as port, Redis(port=port) as real:
        made = compare(Pair(real), traffic, options.calls, options.seed)
    print(f"{options.calls} calls of {len(made)} scripts: no difference")
    missing = {script.files[-1] for script in _scripts._ALL} - {name.rstrip("*") for name in made}
    print(f"not called: {', '.join(sorted(missing)) or 'none'}")


if __name__ == "__main__":
    main()
