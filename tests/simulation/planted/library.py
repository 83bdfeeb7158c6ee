"""Faults of the Python."""

from tests.simulation.planted.fault import Fault

_CALM = "--on one --profile calm"
_LATE = "--on one --profile late"

_HOLDS = (
    Fault(
        "the deadline has no margin",
        "_core/hold.py",
        "return min(0.01 * lease + 0.01 if timing.drift is None else timing.drift, lease / 4)",
        "return 0.0",
        f"{_CALM} --act until_its_end",
    ),
    Fault(
        "the deadline is reckoned from the reply",
        "_core/hold.py",
        "self.deadline = sent + left - margin(left, timing)",
        "self.deadline = monotonic() + left - margin(left, timing)",
    ),
    Fault(
        "the first renewal is due when the lease ends",
        "_core/hold.py",
        "self.watch.renew_at = sent + (left / 2 if soon else timing.renew_interval)",
        "self.watch.renew_at = sent + left",
        _CALM,
    ),
    Fault(
        "bodies are not told of the loss",
        "_core/hold.py",
        "        for body in tuple(self.bodies):\n            body.cancel_if_lost()\n",
        "",
        "--on one --profile pauses",
    ),
    Fault(
        "nothing guards the deadline",
        "_core/watchdog.py",
        "        self._set_guard(hold, hold.deadline - CLEANUP - self._grain)\n",
        "        return\n",
    ),
    Fault(
        "the watchdog is never begun",
        "_core/acquire.py",
        "                session.watchdog.watch(hold)\n",
        "",
        _CALM,
    ),
    Fault(
        "the watchdog renews once",
        "_core/watchdog.py",
        "            if watch.renews:\n                self._set_alarm(hold, watch.renew_at)\n",
        "            pass\n",
        _CALM,
        missed="the end of its task plans the next renewal",
    ),
    Fault(
        "a renewal that failed is not tried again",
        "_core/watchdog.py",
        "            self._set_alarm(hold, monotonic() + self._interval / 10)\n            if watch",
        "            if watch",
        "--on one --profile connections",
        missed="the end of its task plans the next renewal",
    ),
    Fault(
        "holders are not asked for after an outage",
        "_core/session.py",
        "had(hold.keys.lock):\n                self.watchdog.check(hold)\n",
        "had(hold.keys.lock):\n                pass\n",
        "--on one --profile data",
        missed="the next renewal asks",
    ),
    Fault(
        "the lock of a task that has ended is not freed",
        "_core/hold.py",
        '            self.lose("orphaned")\n',
        "            pass\n",
        f"{_CALM} --act forgotten",
    ),
    Fault(
        "a lock that is lost is not freed on the server",
        "_core/hold.py",
        "            self.free()\n        self._keeper.lost(self)",
        "            pass\n        self._keeper.lost(self)",
    ),
    Fault(
        "a loss wakes no waiter",
        "_core/leases.py",
        "            entry.look_again()\n",
        "            pass\n",
        f"{_CALM} --act forgotten",
        missed="waiters ask when the lease is over",
    ),
    Fault(
        "a renewal that the server refuses is no loss",
        "_core/watchdog.py",
        "    if isinstance(answer, Lost) and not hold.ended:\n",
        "    if False:\n",
        "--on one --profile data",
    ),
    Fault(
        "a release takes no step of its own",
        "_core/hold.py",
        "        self.step += 1\n        return commands.release(",
        "        return commands.release(",
        f"{_CALM} --act nested",
    ),
    Fault(
        "the server forgets ends that late commands need",
        "_core/hold.py",
        "if self.state is GIVEN_BACK and not self.open_changes:",
        "if self.state is GIVEN_BACK:",
        _LATE,
    ),
)

_WAITS = (
    Fault(
        "a cancelled acquire is not given up",
        "_core/acquire.py",
        "            if self._may_have_grant:\n                self._abandon()\n",
        "",
    ),
    Fault(
        "a refusal ends the doubt, though a copy may be on its way",
        "_core/acquire.py",
        "self._may_have_grant = self._repeated or self._has_turn\n",
        "self._may_have_grant = False\n",
        _LATE,
    ),
    Fault(
        "a nested acquire that fails is not taken back",
        "_core/acquire.py",
        "            _ = hold.take_back(lease)\n            if isinstance(error, BackendError):",
        "            if isinstance(error, BackendError):",
        "--on one --act nested",
        missed="its task ends soon",
    ),
    Fault(
        "a grant that comes after its deadline is handed out",
        "_core/acquire.py",
        "        if hold.since < hold.deadline:\n",
        "        if True:\n",
        "--on one --profile pauses",
        missed="the lease is looked at again",
    ),
    Fault(
        "the first try fails for the waiters, without waking them",
        "_core/leases.py",
        "            self.look_again()\n",
        "            pass\n",
        "--on one --profile calm",
        missed="waiters ask when their subscription stands",
    ),
    Fault(
        "a wake-up is not handed on when its place leaves",
        "_core/queue.py",
        "elif hid_others or place.trying or place.woken.is_set():",
        "elif hid_others:",
        f"{_CALM} --act crowd",
    ),
    Fault(
        "every message is taken for an echo",
        "_core/queue.py",
        "if monotonic() < until and not (release.ended and _told_nobody(release)):",
        "if monotonic() < until:",
        "--on one",
        missed="waiters ask when the lease is over",
    ),
    Fault(
        "the queue does not ask when the lease of the holder is over",
        "_core/queue.py",
        "            self._probe = self._loop.call_at(at, self._look, context=Context())\n",
        "            pass\n",
        "--on one --profile deaths",
    ),
    Fault(
        "a message wakes nobody",
        "_core/queue.py",
        "        elif not self._is_echo():\n            self._look_after_others()\n",
        "",
        _CALM,
    ),
    Fault(
        "a hand-off takes the place of a try that is under way",
        "_core/place.py",
        "tries = not self.trying and not self.woken.is_set()",
        "tries = True",
        _CALM,
        missed="both tries are of one acquisition",
    ),
    Fault(
        "a refusal uses up what woke the place meanwhile",
        "_core/place.py",
        "        if granted and exclusive:\n",
        "        if True:\n",
        _CALM,
    ),
    Fault(
        "waiters are not told when the client is closed",
        "_core/session.py",
        '                entry.fail(lambda: ClientClosedError("closed"))\n',
        "                pass\n",
        f"{_CALM} --act closes",
        missed="waiters ask when the lease is over",
    ),
    Fault(
        "one client may hand a lock to its own tasks for ever",
        "_core/queue.py",
        "MOST_HAND_OFFS = 16",
        "MOST_HAND_OFFS = 1600000",
        _CALM,
        missed="no queue is that full",
    ),
)

_BEHIND = (
    Fault(
        "a refusal counts, though the try overtook a release of its own client",
        "_core/acquire.py",
        "if granted is None and await before.overtaken_by(self._call):",
        "if False:",
        "--on one --profile refusals --act behind_alone",
    ),
    Fault(
        "a release that is left behind is not sent",
        "_core/hold.py",
        "            call.when_ended(partial(self._behind_ended, holds_left, released_at))\n",
        "            _ = self._keeper.commands.backend.withdraw(call)\n",
        f"{_CALM} --act behind",
    ),
)

_CONNECTIONS = (
    Fault(
        "the calls of a broken connection are not sent again",
        "_redis/pipeline.py",
        "        unanswered = [*self._replication.calls(), *self._sent_calls()]\n",
        "        unanswered = []\n",
    ),
    Fault(
        "a call that is sent again is not marked",
        "_redis/pipeline.py",
        "        for call in unanswered:\n            call.repeated = True\n",
        "",
        _LATE,
    ),
    Fault(
        "the newest command leaves first",
        "_redis/pipeline.py",
        "        batch = [*self._overdue, *self._unsent]\n",
        "        batch = [*self._overdue, *self._unsent][::-1]\n",
        "--on one --act fair",
    ),
    Fault(
        "a release is given up at its deadline",
        "_redis/pipeline.py",
        "(*self._overdue, *ended) if now < call.resend_until}",
        "(*self._overdue, *ended) if now < call.deadline}",
        "--on one --profile connections",
    ),
    Fault(
        "a script that the server does not know is not sent whole",
        "_redis/pipeline.py",
        "isinstance(error, NoScriptError) and not call.whole",
        "False",
        "--on one --profile server",
    ),
    Fault(
        "answers to calls that left together go to the wrong ones",
        "_redis/pipeline.py",
        "zip(calls, frame, strict=True)",
        "zip(calls, frame[::-1], strict=True)",
        _CALM,
    ),
    Fault(
        "no signal when a subscription stands",
        "_redis/notifier.py",
        "                    signal(frame[0] in _MESSAGES)\n",
        "                    if frame[0] in _MESSAGES:\n                        signal(True)\n",
        _CALM,
    ),
    Fault(
        "no signal when a channel that is watched gets another watcher",
        "_redis/notifier.py",
        "            self._loop.call_soon(signal, False, context=Context())\n",
        "            pass\n",
        _CALM,
        missed="waiters ask when the lease is over",
    ),
    Fault(
        "a half-open subscription is not noticed",
        "_redis/notifier.py",
        "            self._check_alive(now)\n",
        "            pass\n",
        "--on one --profile network",
    ),
    Fault(
        "a refused subscription is not made again",
        "_redis/notifier.py",
        "            self._subscribe_again()\n",
        "            pass\n",
        "--on cluster --profile refusals",
        missed="waiters ask when the lease is over",
    ),
    Fault(
        "a new connection subscribes to nothing",
        "_redis/notifier.py",
        "            # Each has a command of its own: one that is forbidden would forbid a whole command.\n"
        "            self.listen(name)",
        "            pass",
        "--on one",
    ),
)

_PRIMITIVES = (
    Fault(
        "what a body came to is not remembered",
        "_primitives/once.py",
        "            self._note(turn, turn.lease, None)\n",
        "",
        f"{_CALM} --act once",
    ),
    Fault(
        "several locks: what is granted behind a refusal is kept",
        "_primitives/multi/lock.py",
        "        await _give_back(surplus)\n",
        "",
        f"{_CALM} --act both_locks",
    ),
    Fault(
        "several locks: a cancelled acquire keeps what it has",
        "_primitives/multi/lock.py",
        "        except BaseException:\n            let_go(self._granted)\n            raise\n",
        "        except BaseException:\n            raise\n",
        f"{_CALM} --act both_locks",
        missed="its task ends soon",
    ),
    Fault(
        "a leader does not stop before its lease ends",
        "_primitives/leader.py",
        "            hold.tell_early(hold.why_over)\n",
        "            pass\n",
        "--on one --profile connections --act leads",
        missed="its lease cancels the body in time",
    ),
)

LIBRARY = (*_HOLDS, *_WAITS, *_BEHIND, *_CONNECTIONS, *_PRIMITIVES)
