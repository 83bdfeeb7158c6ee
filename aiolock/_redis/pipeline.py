"""
The calls that share one connection.

Rules:
1. A command that was sent is never cancelled, only the wait for it is; the command goes on without its caller.
2. A call whose connection failed is sent again until `Call.resend_until`, as every script may be sent twice.
3. With `LockConfig.replicas`, a grant counts when the wanted number of replicas have acknowledged it.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from typing import Any

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import NoScriptError, ReadOnlyError, ResponseError

from aiolock._backend import Call
from aiolock._config import Timing
from aiolock._errors import BackendError
from aiolock._redis.aside import Answered, Aside, ignore
from aiolock._redis.batch import keys_and_arguments, script_of_all, together
from aiolock._redis.connection import Connection
from aiolock._redis.error_replies import is_final, is_passing, understood
from aiolock._redis.failures import Failures
from aiolock._redis.hints import in_words, underlying
from aiolock._redis.outage import Outage
from aiolock._redis.replication import Replication
from aiolock._redis.steering import Steering
from aiolock._redis.user import Command
from aiolock._scripts import Script
from aiolock._scripts.replies import was_done

# Seconds from one tick to the next.
_PULSE = 0.05
# The limit of calls that leave at once together, and share `arrival`: a release, and the acquire behind it.
_MOST_ALONE = 2


class Pipeline:
    """Calls on one connection, in the order in which they were submitted."""

    # Invariant: a call that has not ended, or is still to be sent, is in exactly one of `_overdue`, `_unsent`, `_sent`,
    # `_resting` and the grants that await replication; `_sent` has one entry for every reply that is still to come, in
    # order. No call that has not ended has a deadline before `_due`, and no call in `_overdue` is given up before it.

    # The pipeline connects until this time, even without calls.
    _wanted = 0.0
    # The number of calls that left last, if they left alone: no other reply was to come. Else 0.
    _left_alone = 0
    # A call may fail, or be given up, from this time on; at 0 the next tick looks for the time again.
    _due = math.inf
    # The time of the server's last message.
    _heard = 0.0
    _idle: asyncio.Event | None = None

    def __init__(
        self,
        connect: Callable[[], AbstractConnection],
        steering: Steering,
        timing: Timing,
        *,
        urgent: bool,
    ) -> None:
        self._steering, self._timing = steering, timing
        self._replication = Replication(timing.replicas, timing.replicas_timeout)
        self._silence = timing.renewal_patience if urgent else timing.patience
        # The seconds of silence after which this connection is given up; more than `_silence` if connecting took long.
        self._waits = self._silence
        self.outage: Outage = Outage(timing.command_timeout)
        # Only an urgent pipeline may change the order of its calls when it sends them again.
        self._urgent = urgent
        self._unsent: dict[Call, None] = {}
        # Calls that have failed for their callers, and are still to be sent.
        self._overdue: dict[Call, None] = {}
        self._sent: deque[Call | Aside] = deque()
        # Calls that the server has refused for the moment: the next tick sends them again.
        self._resting: dict[Call, None] = {}
        # The scripts that were sent with their source on this connection.
        self._known: set[Script] = set()
        self._last_error: Exception = TimeoutError("no connection could be made in time")
        self._failures = Failures()
        patience, pulse = timing.patience, min(_PULSE, self._silence / 4)
        self.connection: Connection = Connection(self, connect, patience=patience, rest=self._silence, pulse=pulse)

    @property
    def pending(self) -> int:
        """The number of calls that wait for their reply."""
        return len(self._all()) + len(self._overdue)

    def submit(self, call: Call) -> None:
        """Send *call*: now, if the last batch left alone and had as many calls as are unsent; else in the next turn."""
        if self.connection.closed:
            call.fail(self._last_error, "the client was closed")
            return
        if self.outage.since is not None and self.outage.lasts and not call.script.urgent:
            call.fail_within(self.outage.one_attempt)
            self.connection.hurry()
        self._unsent[call] = None
        self._due = call.deadline if call.deadline < self._due else self._due
        # The next data should bring the reply. A call that moved here still awaits data of the earlier server.
        if not self._sent and len(self._unsent) <= _MOST_ALONE and call.arrival is None:
            call.arrival = self.connection.arrival
        at_once = len(self._unsent) == self._left_alone <= _MOST_ALONE and self._is_alone()
        if at_once or len(self._unsent) == 1:
            self.connection.wake(at_once=at_once)

    def _is_alone(self) -> bool:
        """Whether no reply is to come, and no call is expected: while tasks wait, an acquire may follow a release."""
        if self._sent or self._replication.is_wanted:
            return False
        return len(self._unsent) == _MOST_ALONE or not self._steering.client.waiting

    def prepare(self, seconds: float) -> None:
        """Connect, and go on trying for *seconds*, because a call will follow."""
        if not self.connection.connected:
            self._wanted = monotonic() + seconds
            self.connection.wake()

    def withdraw(self, call: Call) -> bool:
        """Take *call* back, which nothing awaits; returns ``False``, and leaves it alone, if it has been sent."""
        if call.sent:
            return False
        for waiting in (self._unsent, self._resting):
            if call in waiting:
                del waiting[call]
                self._notice_idle()
                return True
        return False

    def forget(self, call: Call) -> None:
        """End *call*, even if it was sent, because it needs no answer any more; do not send it again."""
        call.resend_until = 0.0
        call.end(None)
        for waiting in (self._unsent, self._overdue, self._resting):
            waiting.pop(call, None)
        self._notice_idle()

    def take(self, chosen: Callable[[Call], bool]) -> list[Call]:
        """Remove and return the calls that were not sent yet and are *chosen*, to be submitted elsewhere."""
        self._unsent = {**self._overdue, **self._unsent, **self._resting}
        self._overdue.clear()
        self._resting.clear()
        self._due = 0.0
        for call in (taken := [call for call in self._unsent if chosen(call)]):
            del self._unsent[call]
        if self._unsent:
            self.connection.wake()
        self._notice_idle()
        return taken

    async def drained(self) -> None:
        """Wait until no call is pending. Raises `BackendError` if no more answers will come."""
        while self.pending:
            if self.connection.stopped:
                raise BackendError(str(self._last_error))
            self._idle = self._idle or asyncio.Event()
            await self._idle.wait()

    async def aclose(self) -> None:
        """Close the connection; pending calls fail."""
        self.connection.close()
        for call in self._all():
            call.fail(self._last_error, "the client was closed")
        await self.connection.aclose()

    # The methods of a connection's `User`.

    def busy(self) -> bool:
        if self._unsent or self._overdue or self._sent or self._resting or self._replication.granted:
            return True
        return not self.connection.connected and monotonic() < self._wanted

    async def greet(self, connection: AbstractConnection) -> None:
        await self._steering.greet(connection)

    def opened(self, took: float) -> None:
        self.outage.over(took)
        # If connecting took long, which needs several answers, one answer may take long, too.
        self._waits = max(self._silence, min(took, self._timing.patience)) + self._timing.replicas_patience
        if not self._heard and isinstance(self._last_error, TimeoutError):
            self._last_error = TimeoutError("no reply in time")
        # It may be another server.
        self._known.clear()
        # Calls are left if the last connection ended without a call of `broken`.
        self._send_again()

    def has_work(self) -> bool:
        return self._steering.client.is_in_use() or any(not call.ended for call in self._all())

    def outgoing(self) -> list[Command]:
        for call in (*self._overdue, *self._unsent):
            if call.ended and monotonic() >= call.resend_until:
                self.forget(call)
        batch = [*self._overdue, *self._unsent]
        if not batch or ((settled := self._steering.is_settled) and not settled()) or self._replication.is_asked:
            return []
        self._overdue.clear()
        self._unsent.clear()
        self._left_alone = 0 if self._sent else len(batch)
        traffic = self._steering.traffic
        traffic.batches += 1
        traffic.commands += len(batch)
        publish = self._steering.publish
        commands = self._commands(batch[0], publish) if len(batch) == 1 else self._commands_of(batch, publish)
        now = monotonic()
        for call in batch:
            call.sent = now
        if self._replication.is_wanted and any(call.script.lasts for call in batch):
            commands += [self._expect(*question) for question in self._replication.questions()]
        return commands

    def received(self, frame: Any) -> int:
        self._heard = monotonic()
        expected = self._sent.popleft()
        if isinstance(expected, Call):
            answered = 1
            self._answered(expected, frame)
        else:
            answered = len(expected.calls)
            if again := expected.tell(frame):
                self._unsent = dict.fromkeys([*again, *self._unsent])
            self.connection.wake()
        if self._idle is not None:
            self._notice_idle()
        return answered

    def broken(self, error: Exception, waited: float) -> None:
        error = underlying(error)
        if not isinstance(error, TimeoutError):
            self._last_error = error
        # That an idle connection was closed is no failure.
        if self._send_again() or waited:
            self.outage.failed(waited)
        for call in self._unsent:
            call.note(self._last_error)
        if is_final(error):
            for call in self._unsent:
                call.resend_until = 0.0
            self._overdue.clear()
            self._due = 0.0
            self._failures.tell(self._unsent, lambda call: call.fail(error, in_words(error)))
        self._steering.broken(error, was_open=not waited)
        self.tick(monotonic())

    def tick(self, now: float) -> None:
        self._unsent.update(self._resting)
        self._resting.clear()
        if self.connection.stopped:
            self._last_error = ConnectionAbortedError("the task of the connection was cancelled")
            self._due = 0.0
        if now >= self._due:
            self._fail_those_due(now)
        self._notice_idle()
        # The limit is for a silence while replies are to come: with many calls, the last replies come late anyway.
        if self._sent and now >= max(self._heard, self._sent[0].sent) + self._waits:
            self._last_error = TimeoutError(f"no reply within {self._waits:.3g} s")
            self.outage.failed(self._waits)
            self.connection.fail()
        elif self._unsent or self._overdue:
            self.connection.wake()

    def _fail_those_due(self, now: float) -> None:
        """Fail the late calls, or all if no more answers will come; drop those whose `resend_until` has passed."""
        # Some calls are still about to fail: the next tick looks again.
        if self._failures:
            return
        calls, over = [call for call in self._all() if not call.ended], self.connection.stopped
        if late := [call for call in calls if over or now >= call.deadline]:
            self._failures.tell(late, self._fail_late)
        # A call that was written stays in `_sent` until its reply; any other is overdue now, or forgotten.
        ended = [call for call in self._unsent if call.ended]
        for call in ended:
            del self._unsent[call]
        self._overdue = {call: None for call in (*self._overdue, *ended) if now < call.resend_until}
        ends = [call.deadline for call in calls if now < call.deadline] + [call.resend_until for call in self._overdue]
        self._due = 0.0 if self._failures else min(ends, default=math.inf)

    def _fail_late(self, call: Call) -> None:
        """Fail *call* with its own trouble, if it had one: other calls of this server may have had another."""
        cause, outcome = call.trouble or self._last_error, "no answer in time"
        if self.connection.stopped:
            cause, outcome = self._last_error, "there will be no answer"
        elif isinstance(cause, ResponseError):
            outcome = "refused all the time"
        call.fail(cause, f"{outcome} ({in_words(cause)})")

    def _all(self) -> list[Call]:
        return [*self._sent_calls(), *self._replication.calls(), *self._unsent, *self._resting]

    def _sent_calls(self) -> list[Call]:
        return [call for each in list(self._sent) for call in ((each,) if isinstance(each, Call) else each.calls)]

    def _send_again(self) -> bool:
        """Move the unanswered calls of the lost connection to the unsent ones; returns whether there were any."""
        unanswered = [*self._replication.calls(), *self._sent_calls()]
        # An urgent call may break each connection; the urgent one has a copy of it, if no server has redirected it.
        may_break = [call for call in unanswered if call.script.urgent and call.repeated and not call.hops]
        stuck = dict.fromkeys([] if self._urgent else may_break)
        unanswered = [call for call in unanswered if call not in stuck]
        for call in unanswered:
            call.repeated = True
        self._due = 0.0
        # The first unanswered call may have broken the connection: it is sent last.
        last = unanswered[:1] if self._urgent else []
        self._unsent = dict.fromkeys([*unanswered[len(last) :], *self._unsent, *last])
        self._sent.clear()
        self._replication.forget()
        for call in stuck:
            call.fail(self._last_error, f"its connection failed twice ({in_words(self._last_error)})")
        return bool(unanswered or stuck)

    def _commands_of(self, batch: list[Call], publish: str) -> list[Command]:
        """The commands that make the calls of *batch*."""
        commands: list[Command] = []
        for calls in together(batch):
            script = script_of_all(calls)
            if script is None or self._steering.apart or any(call.whole for call in calls):
                for call in calls:
                    commands += self._commands(call, publish)
            else:
                commands.append(self._one_command(script, calls, publish))
        return commands

    def _commands(self, call: Call, publish: str) -> list[Command]:
        """The commands that make *call*."""
        asking = [self._expect(("ASKING",), ignore)] if call.asking else []
        call.asking = False
        script = call.script
        # Later calls on this connection need only the digest of a script that was sent with its source.
        if script not in self._known:
            self._known.add(script)
            call.whole = True
        self._sent.append(call)
        how = ("EVAL", script.source) if call.whole else ("EVALSHA", script.sha)
        return [*asking, (*how, len(call.keys), *call.keys, *call.arguments(publish))]

    def _one_command(self, script: Script, calls: list[Call], publish: str) -> Command:
        """The command in which *script* makes all *calls*."""
        how = ("EVALSHA", script.sha) if script in self._known else ("EVAL", script.source)
        self._known.add(script)
        keys, arguments = keys_and_arguments(calls, publish)
        return self._expect((*how, len(keys), *keys, *arguments), partial(self._all_answered, script, calls), calls)

    def _expect(self, command: Command, tell: Answered, calls: Sequence[Call] = ()) -> Command:
        self._sent.append(Aside(tell, calls))
        return command

    def _answered(self, call: Call, frame: Any) -> None:
        try:
            answer = call.script.decode(frame) if isinstance(frame, list) else None
        except (AttributeError, LookupError, TypeError, ValueError):
            answer = None
        if answer is None:
            self._refused(call, frame)
        elif self._replication.is_wanted and call.script.lasts and was_done(answer):
            self._replication.granted.append((call, answer))
        else:
            call.end(answer)

    def _all_answered(self, script: Script, calls: list[Call], frame: Any) -> list[Call]:
        """Note the answers that *script* gave to all *calls*. If it gave none, send each call again by itself."""
        if isinstance(frame, list) and len(frame) == len(calls):
            for call, reply in zip(calls, frame, strict=True):
                self._answered(call, understood(reply) if isinstance(reply, ResponseError) else reply)
            return []
        for call in calls:
            call.whole = True
        # The server may not know the script.
        self._known.discard(script)
        return calls

    def _refused(self, call: Call, error: Any) -> None:
        if not isinstance(error, ResponseError):
            call.fail(ResponseError(f"{error!r:.300}"), f"the server answered with {error!r:.300}")
        elif isinstance(error, NoScriptError) and not call.whole:
            self._known.discard(call.script)
            call.whole = True
            self._unsent[call] = None
            self.connection.wake()
        elif self._steering.redirected(call, error):
            pass
        elif is_passing(error) and (not call.script.probe or isinstance(error, ReadOnlyError)):
            # A refused call has done nothing, as if it was not sent.
            call.sent = call.sent if call.repeated else 0.0
            call.note(error)
            self._resting[call] = None
            # A replica answered: the next connection may reach the new primary.
            if isinstance(error, ReadOnlyError):
                self.connection.fail()
        else:
            call.fail(error, in_words(error))

    def _notice_idle(self) -> None:
        if self._idle is not None and ((not self._sent and not self.pending) or self.connection.stopped):
            self._idle.set()
            self._idle = None
