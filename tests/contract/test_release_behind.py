"""Blocks leave their release behind: each primitive that has a lease, on one server."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from aiolock import LockClient, LockConfig, LockEvent, Lost, Released
from tests.contract.acts import check_that_no_more_have_it_than_may, is_untouched, nothing_under_way
from tests.contract.kinds import LEASED, Fair, Kind, Multi, each_leased
from tests.support.cancellation import MODES, Mode, Outcome, every_suspension
from tests.support.inside import session_of
from tests.support.observe import answered, until
from tests.support.proxy import Proxy, Rule, drop_reply, hold, refuse, script, withhold_reply

BUSY = b"BUSY Redis is busy running a script"


@pytest.fixture
def events() -> list[LockEvent]:
    return []


@pytest.fixture
async def behind(through: Redis, events: list[LockEvent]) -> AsyncIterator[LockClient]:
    """A client behind the proxy, whose blocks do not wait for the answers to their releases."""
    async with LockClient(through, config=LockConfig(release="behind", on_event=events.append)) as client:
        await client.ping()
        yield client


def told(events: list[LockEvent]) -> list[tuple[str, bool]]:
    """The ends that the events tell of: the class, with `confirmed` of a release, or `behind` of a loss."""
    ends = [event for event in events if isinstance(event, Released | Lost)]
    return [(type(end).__name__, end.confirmed if isinstance(end, Released) else end.behind) for end in ends]


def number_of(kind: Kind) -> int:
    return 3 if isinstance(kind, Multi) else 1


@each_leased
async def test_a_block_is_left_before_its_release_is_answered(
    kind: Kind, proxy: Proxy, behind: LockClient, other: LockClient, events: list[LockEvent]
) -> None:
    await kind.visit(behind)
    await answered(behind)
    withheld = proxy.install(Rule(script(*kind.releases), withhold_reply()))
    before = len(told(events))
    await kind.visit(behind)
    assert behind.statistics().pending == number_of(kind)
    assert behind.statistics().held == 0
    await withheld.caught()
    await is_untouched(kind, other)
    assert len(told(events)) == before, "the event came before the answer"
    withheld.let_go()
    await until(lambda: nothing_under_way(behind))
    assert told(events)[before:] == [("Released", True)] * number_of(kind)
    assert not session_of(behind).leases.behind.releases


@each_leased
async def test_the_end_of_one_block_and_the_begin_of_the_next_are_one_round_trip(
    kind: Kind, behind: LockClient
) -> None:
    await kind.visit(behind)
    before = behind.statistics().batches
    for _ in range(10):
        await kind.visit(behind)
    assert behind.statistics().batches - before <= 11


@each_leased
async def test_there_are_never_more_holders_than_allowed(kind: Kind, behind: LockClient, redis: Redis) -> None:
    async with LockClient(redis, config=LockConfig(release="behind")) as other:
        await check_that_no_more_have_it_than_may(kind, behind, other, in_blocks=True)
        await until(lambda: nothing_under_way(behind) and nothing_under_way(other))
        await is_untouched(kind, other)


@each_leased
async def test_a_looping_client_lets_others_go_first(kind: Kind, behind: LockClient, other: LockClient) -> None:
    """Each release leaves with the next acquire: others get in only if the client waits for the answer in between."""

    async def loop() -> None:
        while not over.is_set():
            await kind.visit(behind)

    over = asyncio.Event()
    looping = asyncio.create_task(loop())
    await until(lambda: behind.statistics().commands > 40)
    for _ in range(3):
        async with asyncio.timeout(20):
            await kind.rival.visit(other)
    over.set()
    await looping


@each_leased
@pytest.mark.parametrize("error", [BUSY, b"NOSCRIPT No matching script", b"OOM command not allowed"])
async def test_a_try_is_not_refused_for_a_release_that_it_has_overtaken(
    kind: Kind, error: bytes, proxy: Proxy, behind: LockClient
) -> None:
    await kind.visit(behind)
    await answered(behind)
    for _ in range(2):
        refused = proxy.install(Rule(script(*kind.releases), refuse(error)))
        await kind.visit(behind)
        taken = await kind.take(behind)
        assert taken
        await refused.caught()
        await kind.give(behind, taken)


@each_leased
async def test_an_acquire_that_waits_is_granted_after_a_release_that_it_has_overtaken(
    kind: Kind, proxy: Proxy, behind: LockClient
) -> None:
    await kind.visit(behind)
    await answered(behind)
    refused = proxy.install(Rule(script(*kind.releases), refuse(BUSY)))
    await kind.visit(behind)
    async with asyncio.timeout(20):
        await kind.visit(behind)
    await refused.caught()


@each_leased
async def test_a_release_whose_reply_is_lost_counts_once(
    kind: Kind, proxy: Proxy, behind: LockClient, other: LockClient, events: list[LockEvent]
) -> None:
    lost = proxy.install(Rule(script(*kind.releases), drop_reply()))
    for _ in range(3):
        await kind.visit(behind)
    await lost.caught()
    await until(lambda: nothing_under_way(behind))
    assert set(told(events)) == {("Released", True)}
    await is_untouched(kind, other)


@each_leased
async def test_a_release_that_comes_late_leaves_the_next_holder_alone(
    kind: Kind, proxy: Proxy, behind: LockClient, other: LockClient
) -> None:
    late = proxy.install(Rule(script(*kind.releases), hold()))
    await kind.visit(behind)
    await late.caught()
    await answered(behind)
    theirs = await kind.rival.take(other)
    assert theirs
    await late.deliver()
    assert not await kind.take(behind)
    await kind.rival.give(other, theirs)
    await is_untouched(kind, other)


@each_leased
@pytest.mark.parametrize("mode", MODES)
async def test_a_cancellation_leaves_nothing_at_any_await(
    kind: Kind, mode: Mode, redis: Redis, other: LockClient
) -> None:
    async def setup() -> LockClient:
        client = LockClient(redis, config=LockConfig(release="behind"))
        await kind.visit(client)
        return client

    async def run(client: LockClient) -> None:
        for _ in range(2):
            await kind.visit(client)

    async def verify(client: LockClient, outcome: Outcome[None]) -> None:
        assert isinstance(outcome.error, asyncio.CancelledError | None)
        assert not outcome.swallowed
        await until(lambda: nothing_under_way(client))
        await is_untouched(kind, other)
        await client.aclose()

    assert await every_suspension(mode, setup, run, verify) >= 1


@each_leased
async def test_a_loss_that_only_the_release_tells(
    kind: Kind, behind: LockClient, redis: Redis, events: list[LockEvent], caplog: pytest.LogCaptureFixture
) -> None:
    async with kind.of(behind):
        await redis.flushall()
    await until(lambda: nothing_under_way(behind))
    assert told(events) == [("Lost", True)] * number_of(kind)
    assert behind.statistics().losses == behind.statistics().losses_behind == number_of(kind)
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len([text for text in warnings if "lost: expired; its block had ended" in text]) == number_of(kind)
    await is_untouched(kind, behind)


@each_leased
async def test_an_explicit_release_waits_and_raises(
    kind: Kind, proxy: Proxy, behind: LockClient, events: list[LockEvent]
) -> None:
    withheld = proxy.install(Rule(script(*kind.releases), withhold_reply()))
    giving = asyncio.create_task(kind.give(behind, await kind.take(behind, owner="job")))
    await withheld.caught()
    assert not giving.done()
    withheld.let_go()
    await giving
    assert told(events) == [("Released", True)] * number_of(kind)


@pytest.mark.parametrize("kind", [kind for kind in LEASED if not isinstance(kind, Fair)], ids=repr)
async def test_one_block_may_choose_otherwise_than_the_config(kind: Kind, proxy: Proxy, through: Redis) -> None:
    for config, said, is_behind in (("behind", "answered", False), ("answered", "behind", True)):
        async with LockClient(through, config=LockConfig(release=config)) as client:  # type: ignore[arg-type]
            async with kind.of(client).hold(release=said):
                pass
            assert (client.statistics().pending > 0) == is_behind
