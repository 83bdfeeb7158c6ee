"""Metrics and spans by the SDK of OpenTelemetry, and links from a wait to the hold that it waited for."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, Metric, NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, Decision, Sampler, SamplingResult
from opentelemetry.trace import Tracer
from redis.asyncio import Redis

import aiolock
from aiolock import LeaseLostError, LockClient, LockConfig, LockEvent
from aiolock._embedded_server import Server
from aiolock._process import Lineage
from aiolock.opentelemetry import instrument
from aiolock.testing import delayed_renewals, failing_commands
from tests.support.calls import acquire
from tests.support.inside import timers_of_marks
from tests.support.observe import answered, commandstats, until

# Seconds after which a wait is linked.
SOON = 0.05


class Service:
    """A service with metrics and traces of its own."""

    def __init__(self, redis: Redis, config: LockConfig | None = None, **how: Any) -> None:
        self._reader = InMemoryMetricReader()
        self._exporter = InMemorySpanExporter()
        self.meters = MeterProvider([self._reader])
        self.tracers = TracerProvider(sampler=how.pop("sampler", None))
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer: Tracer = self.tracers.get_tracer("service")
        self.config = instrument(
            config, link_after=SOON, meter_provider=self.meters, tracer_provider=self.tracers, **how
        )
        self.locks = LockClient(redis, config=self.config)

    async def __aenter__(self) -> "Service":
        await self.locks.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.locks.aclose()
        self.meters.shutdown()
        self.tracers.shutdown()

    def metrics(self) -> dict[str, Metric]:
        data = self._reader.get_metrics_data()
        if data is None:
            return {}
        [scope] = [scope for each in data.resource_metrics for scope in each.scope_metrics]
        assert (scope.scope.name, scope.scope.version) == ("aiolock", aiolock.__version__)
        return {metric.name: metric for metric in scope.metrics}

    def numbers(self, name: str) -> dict[tuple[str, ...], float]:
        """The counts of a metric by the values of its attributes, in the order of their names."""
        metric = self.metrics().get(name)
        return {} if metric is None else dict(map(_counted, metric.data.data_points))

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]


def _counted(point: Any) -> tuple[tuple[str, ...], float]:
    attributes = point.attributes or {}
    assert isinstance(point, NumberDataPoint | HistogramDataPoint)
    number = point.count if isinstance(point, HistogramDataPoint) else point.value
    return tuple(str(attributes[name]) for name in sorted(attributes)), number


@pytest.fixture
def service(redis: Redis) -> Service:
    return Service(redis)


async def wait_in_a_trace(service: Service, within: float | None = None) -> None:
    """Wait for the lock `orders` within a request, as an owner of its own."""
    with service.tracer.start_as_current_span("waiting request"):
        lock = service.locks.lock("orders", owner="waiter")
        if await lock.try_lock(within) is not None:
            await lock.release()


# Metrics.


async def test_runs_without_their_lock_are_counted(service: Service) -> None:
    async def work() -> None: ...

    async with service:
        await service.locks.synchronized("orders")(work)()
        assert service.numbers("aiolock.bypasses") == {("lock",): 0}
        with failing_commands(service.locks, None):
            await service.locks.synchronized("orders", on_unavailable="run")(work)()
            await service.locks.once("invoice", keep=60, on_unavailable="run").run(work)
        assert service.numbers("aiolock.bypasses") == {("lock",): 1, ("once",): 1}


async def test_acquires_are_counted_by_outcome(service: Service, other: LockClient) -> None:
    async with service, other.lock("taken"):
        async with service.locks.lock("orders"):
            pass
        assert await service.locks.lock("taken").try_lock() is None
        assert await service.locks.lock("taken").try_lock(0.01) is None
        assert service.numbers("aiolock.acquires") == {
            ("lock", "acquired"): 1,
            ("lock", "busy"): 1,
            ("lock", "timeout"): 1,
        }
        assert service.numbers("aiolock.contentions") == {("lock",): 2}
        assert service.numbers("aiolock.wait.duration") == {("lock", "timeout"): 1}
        assert service.numbers("aiolock.hold.duration") == {("lock", "released"): 1}


async def test_names_of_locks_are_in_no_metric_but_by_a_group(redis: Redis, service: Service) -> None:
    grouped = Service(redis, group=lambda name: name.partition(":")[0])
    async with service, grouped:
        for each in (service, grouped):
            async with each.locks.lock("order:17"):
                pass
        assert service.numbers("aiolock.acquires") == {("lock", "acquired"): 1}
        assert grouped.numbers("aiolock.acquires") == {("order", "lock", "acquired"): 1}
        assert grouped.numbers("aiolock.hold.duration") == {("order", "lock", "released"): 1}
        points = [point for metric in service.metrics().values() for point in metric.data.data_points]
        assert not [point for point in points if "17" in str(point.attributes)]


async def forget(lock: aiolock.AsyncRLock) -> None:
    await lock.acquire()


async def test_losses_are_counted_by_reason_without_leases_that_were_left_to_end(service: Service) -> None:
    async with service:
        locks = service.locks
        await locks.lock("forced").acquire()
        await locks.lock("forced").force_release()
        lease = await locks.lock("short").acquire(lease=0.5)
        assert await lease.lost == "expired"
        with pytest.raises(LeaseLostError):
            async with locks.lock("body").hold(lease=0.5):
                await asyncio.sleep(60)
        await asyncio.create_task(forget(locks.lock("forgotten")))
        await until(lambda: locks.statistics().losses == 4)
        assert service.numbers("aiolock.losses") == {
            **{("lock", reason): 0 for reason in ("closed", "max_hold", "taken", "unreachable")},
            **{("lock", reason): 1 for reason in ("expired", "forced", "orphaned")},
        }
        assert service.numbers("aiolock.hold.duration") == {
            **{("lock", "lost"): 2, ("lock", "ran out"): 1, ("lock", "orphaned"): 1},
        }


async def test_late_renewals_are_counted(redis: Redis) -> None:
    async with Service(redis, LockConfig(lease=30, renew_interval=0.1)) as service:
        with delayed_renewals(service.locks):
            async with service.locks.lock("orders"):
                await until(lambda: service.numbers("aiolock.late_renewals").get(("lock",), 0) >= 1)


async def test_the_numbers_of_clients_are_added_up(redis: Redis, service: Service) -> None:
    second = LockClient(redis, config=service.config)
    async with service, second:
        async with service.locks.lock("a"), second.lock("b"):
            waiting = asyncio.create_task(second.lock("a", owner="w").try_lock(30))
            await until(lambda: second.statistics().parked == 1)
            await answered(second)
            await until(lambda: service.numbers("aiolock.held.count") == {(): 2})
            assert service.numbers("aiolock.waiting.count") == {(): 1}
            sent = service.locks.statistics().commands + second.statistics().commands
            assert service.numbers("aiolock.commands") == {(): sent}
        await waiting
        await second.aclose()
        done = second.statistics().commands + service.locks.statistics().commands
        await until(lambda: service.numbers("aiolock.commands") == {(): done})
        assert service.numbers("aiolock.held.count") == {(): 0}


async def test_after_a_fork_the_parents_clients_are_not_counted(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with service, service.locks.lock("orders"):
        with monkeypatch.context() as child:
            child.setattr(Lineage, "forks", Lineage.forks + 1)
            assert service.numbers("aiolock.held.count") == {(): 0}
        await until(lambda: service.numbers("aiolock.held.count") == {(): 1})


async def test_the_metrics_follow_the_conventions(service: Service) -> None:
    async with service, service.locks.lock("orders"):
        for name, metric in service.metrics().items():
            assert name.startswith("aiolock."), name
            assert not name.endswith(("_total", "_seconds", ".s")), name
            assert metric.unit == "s" if name.endswith(".duration") else str(metric.unit).startswith("{"), name
            assert metric.description


async def test_a_great_many_holds_are_recorded_in_part_and_counted_in_full(service: Service) -> None:
    async with service:
        await asyncio.gather(*(hold(service.locks, f"n{number}") for number in range(400)))
        assert service.numbers("aiolock.acquires") == {("lock", "acquired"): 400}
        assert 25 <= service.numbers("aiolock.hold.duration")[("lock", "released")] < 400


async def hold(locks: LockClient, name: str) -> None:
    async with locks.lock(name):
        pass


# Spans.


async def test_without_a_trace_there_is_no_span_and_nothing_is_left(service: Service, redis: Redis) -> None:
    async with service, service.locks.lock("orders"):
        await asyncio.sleep(SOON)
        assert await redis.keys("aiolock_mark:*") == []
    assert service.spans("aiolock.hold") == []


async def test_a_hold_is_a_span_of_the_trace_that_it_began_in(service: Service) -> None:
    async with service:
        with service.tracer.start_as_current_span("request") as request:
            async with service.locks.lock("orders") as lease, service.locks.lock("orders"):
                pass
        [span] = service.spans("aiolock.hold")
    assert span.parent is not None
    assert span.parent.span_id == request.get_span_context().span_id
    assert span.attributes is not None
    owner = span.attributes["aiolock.lock.owner"]
    assert dict(span.attributes) == {
        "aiolock.lock.name": "orders",
        "aiolock.lock.kind": "lock",
        "aiolock.lock.owner": owner,
        "aiolock.lock.token": lease.token,
        "aiolock.outcome": "released",
    }


async def test_a_hold_that_is_lost_is_a_span_that_failed(service: Service) -> None:
    async with service:
        with service.tracer.start_as_current_span("request"):
            await service.locks.lock("orders").acquire()
        await service.locks.lock("orders").force_release()
        [span] = service.spans("aiolock.hold")
    assert not span.status.is_ok
    assert span.status.description == "lost: forced"


async def test_a_wait_that_fails_is_a_span_that_failed(service: Service, other: LockClient) -> None:
    async with service, other.lock("orders"):
        await wait_in_a_trace(service, 0.01)
        [span] = service.spans("aiolock.wait")
    assert not span.status.is_ok
    assert span.attributes is not None
    assert span.attributes["aiolock.outcome"] == "timeout"
    assert span.start_time is not None
    assert span.end_time is not None
    # Timers may ring a little early.
    assert span.end_time - span.start_time > 5e6


# Marks of holds, by which waits find them.


async def linked(holder: Service, waiter: Service, redis: Redis) -> None:
    """Let the waiter wait for the holder, and see that the span of the wait leads to that of the hold."""
    with holder.tracer.start_as_current_span("holding request"):
        lock = holder.locks.lock("orders")
        await lock.acquire()
    await until(lambda: _left(redis))
    waiting = asyncio.create_task(wait_in_a_trace(waiter))
    await until(lambda: waiter.locks.lock("orders").statistics().parked == 1)
    # The timer of the waiter was set before this one, and rings before it.
    if holder is waiter:
        await asyncio.sleep(2 * SOON)
    else:
        await looked(waiter.locks)
    await lock.release()
    await waiting
    [hold] = [span for span in holder.spans("aiolock.hold") if span.attributes and not is_waiter(span)]
    [wait] = waiter.spans("aiolock.wait")
    [link] = wait.links
    assert hold.context is not None
    assert (link.context.trace_id, link.context.span_id) == (hold.context.trace_id, hold.context.span_id)
    assert wait.context is not None
    assert wait.context.trace_id != hold.context.trace_id
    await until(lambda: _none_left(redis))


async def looked(waiter: LockClient) -> None:
    """Return when the waiter has looked for a mark: after its first try, and the one after its subscription."""
    await until(lambda: waiter.statistics().commands >= 3)
    await answered(waiter)


def is_waiter(span: ReadableSpan) -> bool:
    return str((span.attributes or {})["aiolock.lock.owner"]).endswith(":named:waiter")


async def _none_left(redis: Redis) -> bool:
    return await redis.keys("aiolock_mark:*") == []


async def test_a_long_wait_leads_to_the_holder_in_another_service(redis: Redis) -> None:
    async with Service(redis) as holder, Service(redis) as waiter:
        await linked(holder, waiter, redis)


async def test_a_long_wait_leads_to_the_holder_in_the_same_service(service: Service, redis: Redis) -> None:
    async with service:
        await linked(service, service, redis)


async def test_a_short_wait_leads_nowhere(redis: Redis) -> None:
    async with Service(redis) as holder, Service(redis) as waiter:
        # The new patience holds from the next client on.
        holder.config.telemetry.patience = 60  # type: ignore[union-attr]
        with holder.tracer.start_as_current_span("request"):
            lock = holder.locks.lock("orders")
            await lock.acquire()
        waiting = asyncio.create_task(wait_in_a_trace(waiter))
        await until(lambda: waiter.locks.lock("orders").statistics().parked == 1)
        await lock.release()
        await waiting
        [wait] = waiter.spans("aiolock.wait")
    assert not wait.links


class RecordOnly(Sampler):
    """A span that is not exported leaves no mark: a link to it would lead nowhere."""

    def should_sample(self, *_: Any, **__: Any) -> SamplingResult:
        return SamplingResult(Decision.RECORD_ONLY)

    def get_description(self) -> str:
        return "RecordOnly"


@pytest.mark.parametrize("sampler", [ALWAYS_OFF, RecordOnly()])
async def test_a_holder_that_is_not_sampled_leaves_nothing(redis: Redis, sampler: Sampler) -> None:
    async with Service(redis, sampler=sampler) as service:
        with service.tracer.start_as_current_span("request"):
            async with service.locks.lock("orders"):
                await asyncio.sleep(SOON)
                assert await redis.keys("aiolock_mark:*") == []


async def test_a_mark_lives_as_long_as_the_hold_and_no_longer_than_its_lease(redis: Redis) -> None:
    async with Service(redis, LockConfig(lease=2, renew_interval=0.1)) as service:
        with service.tracer.start_as_current_span("request"):
            await service.locks.lock("orders").acquire()
        await until(lambda: _left(redis))
        await redis.pexpire("aiolock_mark:{orders}", 100)
        await until(lambda: _lives_for(redis, 1000))
        assert await redis.pttl("aiolock_mark:{orders}") <= 2000
        await service.locks.lock("orders").release()
        await until(lambda: _none_left(redis))


async def test_a_hold_that_has_a_first_lease_again_has_one_timer_for_its_mark(redis: Redis) -> None:
    """Its first lease was given back while a nested acquire was on its way."""
    async with LockClient(redis, config=LockConfig(telemetry=Marking(60))) as locks:
        lock = locks.lock("orders", owner="job")
        first = await lock.acquire()
        [timer] = timers_of_marks(locks)
        nested = asyncio.create_task(acquire(lock))
        await asyncio.sleep(0)
        await first.release()
        second = await nested
        assert timers_of_marks(locks) == [timer]
        await second.release()
        assert timers_of_marks(locks) == []
        assert timer.cancelled()


@pytest.mark.parametrize(("interval", "closed"), [(0.1, False), (15, True)], ids=["", "with the client"])
async def test_a_mark_is_removed_though_no_event_reported_the_end_of_its_hold(
    redis: Redis, interval: float, closed: bool
) -> None:
    """The last acquire of such a hold was cancelled when all others had been given back."""
    async with Service(redis, LockConfig(renew_interval=interval)) as service:
        lock = service.locks.lock("orders", owner="job")
        with service.tracer.start_as_current_span("request"):
            first = await lock.acquire()
            await until(lambda: _left(redis))
            nested = asyncio.create_task(acquire(lock))
            await asyncio.sleep(0)
            release = asyncio.create_task(first.release())
            await asyncio.sleep(0)
            nested.cancel()
            await asyncio.wait([nested, release])
        if closed:
            assert len(timers_of_marks(service.locks)) == 1, "a timer looks after the mark later"
        else:
            await until(lambda: _none_left(redis))
    assert timers_of_marks(service.locks) == []


async def test_a_once_has_another_mark_than_the_lock_of_its_name(redis: Redis, service: Service) -> None:
    async with service:
        with service.tracer.start_as_current_span("request"):
            async with service.locks.once("orders", keep=60):
                await until(lambda: _left(redis, "aiolock_once:"))
                assert not await _left(redis)
        await until(lambda: _none_left(redis))


async def _left(redis: Redis, what: str = "") -> bool:
    return bool(await redis.exists(f"aiolock_mark:{what}{{orders}}"))


async def _lives_for(redis: Redis, ms: int) -> bool:
    return int(await redis.pttl("aiolock_mark:{orders}")) > ms


@pytest.mark.parametrize("mark", ["rubbish", "00-0-0-01", "00-" + 32 * "f" + "-" + 16 * "0" + "-01"])
async def test_a_foreign_mark_is_no_link(redis: Redis, service: Service, other: LockClient, mark: str) -> None:
    await redis.hset("aiolock_mark:{orders}", mapping={"of": "somebody", "text": mark})
    async with service, other.lock("orders"):
        await wait_in_a_trace(service, 4 * SOON)
        [wait] = service.spans("aiolock.wait")
    assert not wait.links


async def test_a_key_that_is_no_mark_keeps_nobody_from_the_lock(redis: Redis, service: Service) -> None:
    await redis.set("aiolock_mark:{orders}", "a string")
    async with service:
        with service.tracer.start_as_current_span("request"):
            async with service.locks.lock("orders"):
                await asyncio.sleep(SOON)


async def test_a_user_that_may_not_leave_marks_has_locks_all_the_same(
    own: Server, caplog: pytest.LogCaptureFixture
) -> None:
    async with Redis.from_url(own.url) as redis, Service(redis) as holder, Service(redis) as waiter:
        rules = ("default", "resetkeys", "~orders", "~aiolock_token:*")
        await redis.execute_command("ACL", "SETUSER", *rules)  # type: ignore[no-untyped-call]
        with holder.tracer.start_as_current_span("request"):
            async with holder.locks.lock("orders"):
                assert await waiter.locks.lock("orders").try_lock(4 * SOON) is None
        async with waiter.locks.lock("orders"):
            pass
    assert caplog.records == []


async def test_without_telemetry_nothing_is_sent_for_it(redis: Redis, locks: LockClient, other: LockClient) -> None:
    async with other.lock("orders"):
        await answered(other)
        before = await commandstats(redis)
        assert await locks.lock("orders").try_lock(4 * SOON) is None
        await answered(locks)
        after = await commandstats(redis)
    assert after["evalsha"] + after.get("eval", 0) - before["evalsha"] - before.get("eval", 0) <= 3
    assert "hmget" not in after.keys() - before.keys()


# How it is set up.


async def test_the_users_own_hook_is_called_too(redis: Redis) -> None:
    heard: list[LockEvent] = []

    def fail(name: str) -> str:
        raise ZeroDivisionError

    config = LockConfig(on_event=heard.append)
    async with Service(redis, config, group=fail) as service, service.locks.lock("orders"):
        pass
    assert [type(event).__name__ for event in heard] == ["Acquired", "Released"]


async def test_a_telemetry_that_fails_changes_nothing(redis: Redis, caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        patience = 0.1

        def started(self, *_: object) -> None:
            pass

        def closed(self, *_: object) -> None:
            raise ZeroDivisionError

        def mark(self, _: object) -> str:
            raise ZeroDivisionError

    async with LockClient(redis, config=LockConfig(telemetry=Broken())) as locks, locks.lock("orders"):
        assert await locks.lock("orders").held()
    assert not await redis.exists("orders")
    assert len([each for each in caplog.records if each.exc_info]) == 2


async def test_a_hook_that_raises_keeps_no_mark_from_being_left(redis: Redis) -> None:
    def fail(event: LockEvent) -> None:
        raise ZeroDivisionError

    marking = Marking(0.1)
    config = LockConfig(on_event=fail, telemetry=marking)
    async with LockClient(redis, config=config) as locks, locks.lock("orders"):
        while not await redis.exists("aiolock_mark:{orders}"):
            await asyncio.sleep(0.01)
    assert marking.asked == 1


async def test_a_mark_that_is_no_utf_8_disturbs_no_other_command(redis: Redis) -> None:
    marking = Marking(0.1, "caf\udce9")
    async with LockClient(redis, config=LockConfig(telemetry=marking)) as locks, locks.lock("orders"):
        while not await redis.exists("aiolock_mark:{orders}"):
            async with locks.lock("others"):
                await asyncio.sleep(0.01)
    assert not await redis.exists("orders", "others")


class Picky:
    """A telemetry that says whether a release is of use to it."""

    patience = 0.1

    def __init__(self, answer: bool | Exception) -> None:
        self.answer = answer
        self.heard: list[str] = []

    def hear(self, event: LockEvent) -> None:
        self.heard.append(type(event).__name__)

    def started(self, *_: object) -> None: ...

    def closed(self, *_: object) -> None: ...

    def mark(self, _: object) -> str:
        return ""

    def hears_release(self) -> bool:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Marking(Picky):
    """A telemetry that has each hold leave a mark, after a quarter of its patience."""

    def __init__(self, patience: float, text: str = "mine") -> None:
        super().__init__(True)
        self.patience = patience
        self.asked = 0
        self._text = text

    def mark(self, _: object) -> str:
        self.asked += 1
        return self._text


@pytest.mark.parametrize(
    ("answer", "told"), [(False, 0), (True, 1), (ZeroDivisionError(), 1)], ids=["no", "yes", "fails"]
)
async def test_a_telemetry_may_refuse_to_hear_of_a_release(redis: Redis, answer: bool | Exception, told: int) -> None:
    picky = Picky(answer)
    async with (
        LockClient(redis, config=LockConfig(on_event=picky.hear, telemetry=picky)) as locks,
        locks.lock("orders"),
    ):
        pass
    assert picky.heard == ["Acquired", "Released"][: 1 + told]


async def test_a_hook_that_is_not_the_telemetrys_hears_all(redis: Redis) -> None:
    picky = Picky(False)

    def hear(event: LockEvent) -> None:
        picky.hear(event)

    config = LockConfig(on_event=hear, telemetry=picky)
    async with LockClient(redis, config=config) as locks, locks.lock("orders"):
        pass
    assert picky.heard == ["Acquired", "Released"]


async def test_a_release_that_the_telemetry_refuses_is_logged(redis: Redis, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "aiolock")
    async with LockClient(redis, config=LockConfig(telemetry=Picky(False))) as locks, locks.lock("orders"):
        pass
    assert [record.getMessage().endswith(": released") for record in caplog.records][-1:] == [True]


async def test_the_duration_of_a_hold_within_a_trace_is_always_reported(redis: Redis) -> None:
    """The holds before it use up the share of their part of the second."""
    async with Service(redis) as service:
        for _ in range(30):
            async with service.locks.lock("orders"):
                pass
        with service.tracer.start_as_current_span("request"):
            async with service.locks.lock("orders"):
                pass
        assert len(service.spans("aiolock.hold")) == 1


async def coroutine_group(name: str) -> str:
    return name


def test_bad_settings_are_refused() -> None:
    with pytest.raises(TypeError, match=r"LockConfig, .* not str$"):
        instrument("redis://:secret@localhost")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="already"):
        instrument(instrument())
    for group in ("orders", coroutine_group):
        with pytest.raises(TypeError, match="group must be a plain function"):
            instrument(group=group)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="link_after"):
        instrument(link_after=0)
    with pytest.raises(TypeError, match=r"aiolock\.Telemetry"):
        LockConfig(telemetry=print)  # type: ignore[arg-type]


HOLDER = Path(__file__).parent / "support" / "traced_holder.py"


@pytest.fixture
def holder_program() -> list[str]:
    return [sys.executable, str(HOLDER)]


@pytest.mark.slow
async def test_a_long_wait_leads_to_the_holder_in_another_process(
    server: Server, redis: Redis, holder_program: list[str]
) -> None:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*holder_program, server.url, stdin=pipe, stdout=pipe)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        hold = (await process.stdout.readline()).decode().strip()
        async with Service(redis) as service:
            await until(lambda: _left(redis))
            waiting = asyncio.create_task(wait_in_a_trace(service))
            await looked(service.locks)
            process.stdin.write(b"\n")
            await waiting
            [wait] = service.spans("aiolock.wait")
        assert [f"{link.context.trace_id:032x}-{link.context.span_id:016x}" for link in wait.links] == [hold]
    finally:
        process.stdin.close()
        await process.wait()
