"""The simulation's server of a cluster, compared with real ones while a slot moves."""

from typing import Any

import hiredis
import pytest
from redis import Redis
from redis.crc import key_slot

from aiolock._embedded_server import Server
from tests.simulation.topologies.cluster_node import Node
from tests.simulation.world import World
from tests.support.resharding import begin_to_move, end_move
from tests.support.topologies import ClusterOf, ask

OLD, NEW = "{half moved}old", "{half moved}new"
# The answers to commands with a key that is here, and one that is not; errors count as such, whatever their words.
SCRIPT = """
local function answer(...)
  local answer = redis.pcall(...)
  return type(answer) == 'table' and answer.err and 'refused' or answer
end
return {
  answer('EXISTS', KEYS[1]), answer('EXISTS', ARGV[1]), answer('EXISTS', KEYS[1], ARGV[1]), answer('PTTL', ARGV[1]),
  answer('HLEN', ARGV[1]), answer('DEL', KEYS[1], ARGV[1]), answer('DEL', ARGV[1]), answer('INCR', ARGV[1]),
}
"""


@pytest.mark.parametrize("end", ["source", "target"])
def test_scripts_that_need_keys_of_the_other_end_are_answered_as_by_real_servers(
    calm: ClusterOf, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(calm.owner_of(OLD), "SET", OLD, 1)
    ask(calm.owner_of(OLD), "SET", NEW, 1)
    source, target = begin_to_move(calm, OLD)
    ask(source, "MIGRATE", target.host, calm.port_of(target), NEW, 0, 5000)
    here, missing = (OLD, NEW) if end == "source" else (NEW, OLD)
    real = real_answer(source if end == "source" else target, here, missing)
    monkeypatch.setattr(World, "here", None)
    assert model_answer(end, here, missing) == real
    for each in (source, target):
        ask(each, "FLUSHALL")
    end_move(calm, OLD, target)


def real_answer(server: Server, here: str, missing: str) -> Any:
    with Redis.from_url(server.url, single_connection_client=True) as client:
        client.execute_command("ASKING")
        return client.eval(SCRIPT, 1, here, missing)


def model_answer(end: str, here: str, missing: str) -> Any:
    node = Node(World(0), "n0", is_sharded=True)
    (node.migrating if end == "source" else node.importing)[key_slot(here.encode())] = node
    node.data.run(b"SET", [here.encode(), b"1"])
    reader = hiredis.Reader()
    reader.feed(node.run_script(SCRIPT.encode(), 1, [here.encode(), missing.encode()]))
    return reader.gets()
