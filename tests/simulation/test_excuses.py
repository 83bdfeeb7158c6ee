"""The cases that the checks of holders and waits excuse, and the faults beside them that they still find."""

import random
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hiredis import Reader
from redis.crc import key_slot

from aiolock._scripts import ACQUIRE, COUNTING_SEMAPHORE, FAIR, READ, RENEW, Script
from tests.simulation.checks import Checks
from tests.simulation.checks.holders import Held
from tests.simulation.faults import Faults
from tests.simulation.fleet import Fleet, Settings
from tests.simulation.network import Network
from tests.simulation.process import Process
from tests.simulation.profiles import Fault
from tests.simulation.scenario import settle
from tests.simulation.script_calls import GRANTED, REFUSED, Ran
from tests.simulation.server import Server, script_name
from tests.simulation.topologies import TOPOLOGIES
from tests.simulation.topologies.cluster_node import SLOTS
from tests.simulation.world import World

CLIENTS = ("p1", "p2", "p3")
LOCK = "lock-a"
KEYS = (LOCK, f"aiolock_token:{{{LOCK}}}")
MEMORY = ("3601000", "60000")
CHANNEL = (f"redisson_lock__channel:{{{LOCK}}}", "PUBLISH")


def ids(client: str) -> tuple[str, str]:
    """The owner and the acquisition of the only acquire of a client."""
    return f"{client}@host/1:1", f"{client}:1"


class Lease:
    """The part of a lease that the checks look at."""

    def __init__(self, token: int) -> None:
        self.token, self.lost = token, self
        self._hold: object | None = None

    def is_set(self) -> bool:
        return False


class Stage:
    """Two servers, of which the first is the primary, and processes that the test plays."""

    def __init__(self) -> None:
        self.world = World(0)
        topology = TOPOLOGIES["sentinel"](Network(self.world, (0.001, 0.002)), random.Random(0), "calm")
        self.fleet = fleet = Fleet(topology, Settings(acts=[], lease=6.0, leases=[6.0], horizon=6.0))
        fleet.faults = self.faults = Faults(topology, fleet, [])
        fleet.checks = self.checks = Checks(self.faults, {"permits": 2, "sem": 2}, 0.002)
        self.primary, self.replaced = topology.servers
        self.processes = {name: Process(fleet.network, name) for name in CLIENTS}
        for name, process in self.processes.items():
            member: Any = SimpleNamespace(process=process, is_shutting_down=False, client_id=name, pending=int)
            fleet.members[process] = member

    def run(self, server: Server, script: Script, *words: str, keys: tuple[str, ...] = KEYS) -> list[int]:
        """Run the script with the *words* on the server, and let the checks see it; returns its answer."""
        source, args = script.source.encode(), [word.encode() for word in (*keys, *words)]
        server.tick()
        reply = server.run_script(source, len(keys), args)
        self.checks.script_ran(server, Ran(script_name(source), args, reply))
        reader = Reader()
        reader.feed(reply)
        answer: list[int] = reader.gets()
        return answer

    def grant(self, server: Server, client: str, lease: int = 6000) -> int:
        """Grant the lock to the client; returns the token."""
        status, token, *_ = self.run(server, ACQUIRE, *ids(client), "1", "1", str(lease), *MEMORY)
        assert status == GRANTED
        return token

    def grant_to_read(self, client: str) -> int:
        """Grant the read-write lock to the client as a reader; returns the token."""
        owner, acquisition = ids(client)
        words = (owner, acquisition, "1", "1", "100", *MEMORY, "0", "redisson_rwlock:{rw}", "PUBLISH")
        keys = ("rw", "aiolock_token:{rw}", f"{{rw}}:{owner}:rwlock_timeout:1")
        status, token, *_ = self.run(self.primary, READ.acquire, *words, keys=keys)
        assert status == GRANTED
        return token

    def ask_in_line(self, client: str, arrived: int = 0) -> tuple[int, int]:
        """The client asks for the fair lock, and waits; returns the status, and its time of arrival or its token."""
        words = (*ids(client), "1", "1", "6000", *MEMORY, "1", str(arrived))
        status, number, *_ = self.run(self.primary, FAIR.acquire, *words)
        return status, number

    def release_in_line(self, client: str) -> None:
        self.run(self.primary, FAIR.release, *ids(client), "2", "0", *MEMORY, "", *CHANNEL)

    def tell(self, client: str, token: int, name: str = LOCK) -> None:
        """The client hears of its grant."""
        self.checks.holders.took(self.processes[client], name, Lease(token))

    def lose_data(self, until: float) -> None:
        """Servers may forget their grants until then."""
        self.faults.lose_data(until)

    def restart_empty(self) -> None:
        self.primary.data.restore(({}, {}))
        self.checks.restarted(self.primary, lost=True)
        self.lose_data(self.world.now)

    @property
    def found(self) -> list[str]:
        return [violation.split(":")[0] for violation in self.world.violations]


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    for process in stage.processes.values():
        process.close()
    World.here = None


@pytest.mark.parametrize("replicas", [None, 1])
@pytest.mark.parametrize(("lost_at", "step", "found"), [(2.0, 3, []), (2.0, 2, ["count"]), (0.5, 3, ["count"])])
def test_a_server_that_has_lost_a_change_of_the_count_may_have_another_count(
    stage: Stage, lost_at: float, step: int, found: list[str], replicas: int | None
) -> None:
    stage.fleet.settings = replace(stage.fleet.settings, replicas=replicas)
    stage.world.now = 1.0
    lease = Lease(stage.grant(stage.primary, "p1"))
    stage.run(stage.primary, ACQUIRE, *ids("p1"), "2", "2", "60000", *MEMORY)
    # The client has one hold left.
    lease._hold = SimpleNamespace(owner=ids("p1")[0], leases=[lease], step=step)
    stage.checks.holders.took(stage.processes["p1"], LOCK, lease)
    stage.lose_data(lost_at)
    stage.world.now = 20.0
    stage.checks.holders.compare()
    assert stage.found == found


# A grant of a primary that was replaced, of which its client hears later.


def test_a_grant_of_a_replaced_primary_may_be_told_after_another_grant_can_come(stage: Stage) -> None:
    stage.lose_data(until=2.0)
    stage.world.now = 1.0
    token = stage.grant(stage.replaced, "p1")
    stage.world.now = 3.0
    stage.tell("p1", token)
    stage.grant(stage.primary, "p2")
    assert stage.found == []


def test_a_grant_is_not_excused_by_a_loss_of_other_names(stage: Stage) -> None:
    stage.world.now = 1.0
    stage.tell("p1", stage.grant(stage.primary, "p1"))
    stage.faults.lose_data(2.0, slots=[range(key_slot(LOCK.encode())), range(key_slot(LOCK.encode()) + 1, SLOTS)])
    stage.primary.data.drop(LOCK.encode())
    stage.grant(stage.primary, "p2")
    assert stage.found == ["exclusion"]


@pytest.mark.parametrize(("lost_at", "found"), [(1.0, ["at least"]), (2.1, [])])
def test_a_lock_is_kept_unless_it_was_lost_since_its_grant(stage: Stage, lost_at: float, found: list[str]) -> None:
    stage.lose_data(lost_at)
    stage.checks.holders.keep(LOCK, 2.0, 2.3)
    stage.world.now = 2.2
    stage.grant(stage.primary, "p1")
    assert stage.found == found


@pytest.mark.parametrize(("lost_at", "found"), [(1.0, ["ticket"]), (2.1, [])])
def test_a_detached_hold_is_adopted_once_unless_it_was_lost(stage: Stage, lost_at: float, found: list[str]) -> None:
    stage.lose_data(lost_at)
    stage.world.now = 2.0
    detached = stage.checks.holders.took(stage.processes["p1"], LOCK, Lease(1))
    stage.world.now = 3.0
    stage.checks.holders.adopted(detached, 2, 2)
    assert stage.found == found


def test_a_grant_of_the_new_primary_is_not_excused_by_the_old_one(stage: Stage) -> None:
    stage.lose_data(until=2.0)
    stage.world.now = 3.0
    stage.tell("p1", stage.grant(stage.primary, "p1"))
    stage.primary.data.drop(LOCK.encode())
    stage.grant(stage.primary, "p2")
    assert stage.found == ["exclusion"]


def test_a_holder_by_a_replaced_primary_must_be_told_of_its_loss_in_time_despite_other_faults(stage: Stage) -> None:
    stage.lose_data(until=2.0)
    stage.faults.plan.append(Fault(3.0, "reset", 0, 1.0, 0.0))
    stage.world.now = 1.0
    token = stage.grant(stage.replaced, "p1")
    stage.world.now = 3.0
    stage.tell("p1", token)
    stage.world.now = 8.1
    stage.checks.holders.compare()
    assert stage.found == ["untold"]


def test_a_replaced_primary_grants_nothing_once_clients_can_know_of_it(stage: Stage) -> None:
    stage.lose_data(until=2.0)
    stage.world.now = 2.1
    stage.grant(stage.replaced, "p1")
    assert stage.found == ["stale"]


@pytest.mark.parametrize("key", [b"lock-a", b"aiolock_once:{lock-a}"])
def test_a_grant_is_known_by_the_name_that_its_holder_uses(stage: Stage, key: bytes) -> None:
    stage.primary.data.run(b"HSET", [key, b"aiolock:acquisition", b"p1:1", b"aiolock:token", b"7"])
    stage.checks.holders.look_for_grants(stage.primary)
    assert stage.checks.holders.grants == {"lock-a": 1}


@pytest.mark.parametrize(("more", "found"), [(0, []), (1, ["ticket"])])
def test_a_detached_lock_has_the_token_of_its_holder(stage: Stage, more: int, found: list[str]) -> None:
    token = b"%d" % (stage.grant(stage.primary, "p1") + more)
    stage.primary.data.run(b"HSET", [LOCK.encode(), b"aiolock:acquisition", b"p1:detached:1", b"aiolock:token", token])
    stage.checks.holders.look_for_grants(stage.primary)
    assert stage.found == found


# The order of tokens, of which clients hear in another order.


def test_a_grant_that_was_lost_may_be_told_after_a_later_one(stage: Stage) -> None:
    stage.world.now = 1.0
    first = stage.grant(stage.primary, "p1")
    stage.world.now = 2.0
    stage.restart_empty()
    stage.world.now = 2.5
    stage.tell("p2", stage.grant(stage.primary, "p2"))
    stage.tell("p1", first)
    assert stage.found == []


@pytest.mark.parametrize(("is_lost", "found"), [(True, []), (False, ["fencing"])])
def test_a_grant_to_read_may_be_told_after_a_later_one_only_if_it_was_lost(
    stage: Stage, is_lost: bool, found: list[str]
) -> None:
    stage.world.now = 1.0
    first = stage.grant_to_read("p1")
    stage.world.now = 2.0
    if is_lost:
        stage.restart_empty()
    stage.world.now = 2.5
    stage.tell("p2", stage.grant_to_read("p2"), "rw")
    stage.checks.holders.held.clear()
    stage.tell("p1", first, "rw")
    assert stage.found == found


@pytest.mark.parametrize("lost_at", [None, 2.0])
def test_a_grant_that_was_not_lost_is_told_before_a_later_one(stage: Stage, lost_at: float | None) -> None:
    if lost_at is not None:
        stage.world.now = lost_at
        stage.restart_empty()
    stage.world.now = 2.5
    first = stage.grant(stage.primary, "p1", lease=100)
    stage.world.now = 2.7
    stage.tell("p2", stage.grant(stage.primary, "p2"))
    stage.tell("p1", first)
    assert stage.found == ["fencing", "exclusion"]


# The line for a fair lock, of which a silent client is passed over.


def stand_in_line(stage: Stage) -> tuple[int, int]:
    """A client has the fair lock, and two more stand in line; returns the times of their arrival."""
    stage.world.now = 1.0
    assert stage.ask_in_line("p1")[0] == GRANTED
    second = stage.ask_in_line("p2")[1]
    stage.world.now = 1.1
    return second, stage.ask_in_line("p3")[1]


def test_a_silent_client_may_be_passed_over(stage: Stage) -> None:
    _, third = stand_in_line(stage)
    stage.world.now = 1.5
    assert stage.ask_in_line("p3", third)[0] == REFUSED
    stage.world.now = 1.8
    stage.release_in_line("p1")
    assert stage.ask_in_line("p3", third)[0] == GRANTED
    assert stage.found == []


def test_a_client_that_asks_is_not_passed_over(stage: Stage) -> None:
    second, third = stand_in_line(stage)
    stage.world.now = 1.5
    stage.ask_in_line("p2", second)
    stage.primary.data.run(b"ZREM", [KEYS[1].encode(), b"ticket p2:1"])
    stage.world.now = 1.8
    stage.release_in_line("p1")
    assert stage.ask_in_line("p3", third)[0] == GRANTED
    assert stage.found == ["line"]


def test_a_client_that_was_passed_over_has_its_old_place_once_it_asks(stage: Stage) -> None:
    second, third = stand_in_line(stage)
    stage.world.now = 1.8
    stage.ask_in_line("p3", third)
    stage.ask_in_line("p2", second)
    stage.primary.data.run(b"ZREM", [KEYS[1].encode(), b"ticket p2:1"])
    stage.release_in_line("p1")
    assert stage.ask_in_line("p3", third)[0] == GRANTED
    assert stage.found == ["line"]


# A copy of an acquire that comes after the end of its lease.


def test_a_copy_of_an_acquire_may_begin_again_once_its_lease_is_over(stage: Stage) -> None:
    stage.world.now = 1.0
    stage.grant(stage.primary, "p1", lease=200)
    stage.run(stage.primary, RENEW, *MEMORY, "p1:1", "5", "0")
    stage.world.now = 1.3
    stage.grant(stage.primary, "p1", lease=200)
    assert stage.found == []


def test_a_copy_of_an_acquire_takes_nothing_back_before_that(stage: Stage) -> None:
    stage.world.now = 1.0
    stage.grant(stage.primary, "p1", lease=200)
    stage.run(stage.primary, RENEW, *MEMORY, "p1:1", "5", "0")
    stage.world.now = 1.1
    stage.primary.data.run(b"HSET", [LOCK.encode(), b"aiolock:renewal", b"0"])
    stage.grant(stage.primary, "p1", lease=200)
    assert stage.found == ["late"]


# A hold that comes back to life because the server's clock steps back.


def read_until_the_clock_steps_back(stage: Stage, *, is_removed: bool) -> None:
    """
    A reader's lease ends, and then the server's clock steps back to before that end.

    *is_removed*: a command finds the expired record in between, which removes it, and yet it comes back.
    """
    data, record = stage.primary.data, f"{{rw}}:{ids('p1')[0]}:rwlock_timeout:1"
    stage.world.now = 1.0
    _ = stage.grant_to_read("p1")
    values, expires = data.snapshot()
    stage.world.now = 1.2
    stage.grant(stage.primary, "p2")
    if is_removed:
        data.run(b"EXISTS", [record.encode()])
        stage.grant(stage.primary, "p2")
        data.values[record.encode()], data.expires[record.encode()] = values[record.encode()], expires[record.encode()]
    stage.primary.wall -= 0.5
    stage.grant(stage.primary, "p2")


@pytest.mark.parametrize(("is_removed", "found"), [(False, []), (True, ["granted"])])
def test_an_expired_hold_may_come_back_with_the_servers_clock_until_it_is_removed(
    stage: Stage, is_removed: bool, found: list[str]
) -> None:
    read_until_the_clock_steps_back(stage, is_removed=is_removed)
    assert stage.found == found


# The permits of a counting semaphore that its server has forgotten.

SEM = ("sem", "aiolock_token:{sem}")


def take_permit(stage: Stage, number: int) -> Held:
    words = (f"p1:{number}", "60000", "3601000", "1", "2", "redisson_sc:{sem}", "PUBLISH")
    assert stage.run(stage.primary, COUNTING_SEMAPHORE.acquire, *words, keys=SEM)[0] == GRANTED
    return stage.checks.holders.took(stage.processes["p1"], "sem", Lease(number))


def put_permit_back(stage: Stage, number: int, held: Held) -> None:
    stage.checks.holders.gives_back(held)
    words = (f"p1:{number}", "1", "3601000", "60000", "", "1", "redisson_sc:{sem}", "PUBLISH")
    stage.run(stage.primary, COUNTING_SEMAPHORE.release, *words, keys=SEM)


@pytest.mark.parametrize(("put_back", "found"), [("never", []), ("later", []), ("before", ["exclusion"])])
def test_as_many_permits_are_held_beside_the_others_as_a_server_forgot(
    stage: Stage, put_back: str, found: list[str]
) -> None:
    """The server has two permits, before and after it forgot. One more comes back later, or is wrongly there."""
    first, _ = take_permit(stage, 1), take_permit(stage, 2)
    if put_back == "before":
        put_permit_back(stage, 1, first)
    stage.world.now = 1.0
    stage.restart_empty()
    stage.world.now = 2.0
    take_permit(stage, 3)
    take_permit(stage, 4)
    if put_back == "later":
        put_permit_back(stage, 1, first)
        take_permit(stage, 5)
    elif put_back == "before":
        stage.primary.data.run(b"SET", [b"sem", b"1"])
        take_permit(stage, 5)
    assert [kind for kind in stage.found if kind == "exclusion"] == found


@pytest.mark.parametrize(("detail", "may"), [(0.3, True), (0.1, False)])
def test_a_permit_may_be_lost_by_a_refusal_after_which_no_client_asks_again(
    stage: Stage, detail: float, may: bool
) -> None:
    stage.faults.plan.append(Fault(1.0, "refuse", 0, 1.0, detail))
    assert stage.faults.may_refuse_for_good == may


# A wait of a process that stood still.


@pytest.mark.parametrize(("froze_at", "found"), [(3.2, []), (None, ["wait"]), (0.1, ["wait"])])
def test_a_wait_may_take_too_long_only_if_its_process_stood_still(
    stage: Stage, froze_at: float | None, found: list[str]
) -> None:
    process = stage.processes["p1"]
    if froze_at is not None:
        stage.world.now = froze_at
        process.freeze(0.5)
    stage.world.now = 4.0
    stage.checks.waits.gave_up(process, LOCK, 0, since=3.0)
    assert stage.found == found


@pytest.mark.parametrize(("freezes", "until"), [(False, 5.0), (True, 8.0)])
def test_leftovers_are_looked_for_when_no_process_stood_still_for_a_while(
    stage: Stage, freezes: bool, until: float
) -> None:
    stage.world.now = 1.0
    if freezes:
        stage.world.at(2.0, stage.processes["p1"].freeze, 2.0)
    settle(stage.world, stage.fleet, 4.0)
    assert stage.world.now == pytest.approx(until)


# A primary that was replaced.


@pytest.mark.parametrize(("lost", "latest"), [(0, 1.6), (1, 4.6), (2, 5.0)])
def test_a_replaced_primary_may_grant_until_two_sentinels_that_work_name_the_new_one(
    stage: Stage, lost: int, latest: float
) -> None:
    sentinels: Any = stage.fleet.topology
    for each in sentinels._sentinels[:lost]:
        each.crash()
    sentinels.primary_replaced(Fault(0.0, "primary_replaced", 0, 5.0, 0.0))
    until = stage.faults.replaced_until
    assert until == latest if lost == 2 else 1.3 < until <= latest
