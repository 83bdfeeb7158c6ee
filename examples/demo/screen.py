"""The user's view: the story as lines, in any output; `live` adds a picture of the present moment to it."""

import os
import sys
import textwrap
from time import monotonic
from types import TracebackType
from typing import Self

from examples.demo.protocol import TASKS
from examples.demo.team import NAMES, Team
from examples.demo.verdict import Check

WIDTH = 80
INTRODUCTION = """\
Four processes share one bank account, a plain file. Each deposits 1 again and again: it reads the balance, \
works for a moment, and writes balance + 1. Two that do so at once would lose a deposit, so each does it \
under the same lock:

    async with locks.lock("account") as lease:
        balance = account.read(lease.token)
        await work()
        account.write(balance + 1, lease.token)
"""


class Screen:
    """Plain lines."""

    # Seconds between two looks at the present moment.
    interval = 1.0

    def __init__(self) -> None:
        self._started = monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    def line(self, text: str = "", style: str = "") -> None:
        """A line of the story."""
        print(text, flush=True)

    def introduce(self, version: str, server: str) -> None:
        self.line(f"aiolock {version} on {server}", "bold")
        self.line()
        for paragraph in INTRODUCTION.split("\n"):
            code = paragraph.startswith(" ")
            self._wrapped(paragraph, indent=" " * 4 if code else "", style="cyan" if code else "")
        self._started = monotonic()

    def title(self, text: str) -> None:
        """A new part of the story begins."""
        self.line()
        self.line(text, "bold")

    def say(self, text: str, style: str = "") -> None:
        """Something happened, now."""
        now = f"{monotonic() - self._started:6.1f} s  "
        self._wrapped(now + text, indent=" " * len(now), style=style)

    def verdict(self, checks: list[Check]) -> None:
        self.title("Verdict, from the file, its log and the tokens")
        for check in checks:
            mark = "  ok      " if check.passed else "  FAILED  "
            self._wrapped(mark + check.text, indent=" " * len(mark), style="green" if check.passed else "bold red")
        self.line()

    def show(self, team: Team) -> None:
        """The present moment."""
        self.say(moment(team), "dim")

    def _wrapped(self, text: str, indent: str, style: str) -> None:
        for line in textwrap.wrap(text, WIDTH - 1, subsequent_indent=indent, drop_whitespace=False) or [""]:
            self.line(line.rstrip(), style)


def moment(team: Team) -> str:
    """The present moment in a line."""
    timeline = team.timeline
    states = {who: task_state(team, who) for who in (name + task for name in NAMES for task in TASKS)}
    holder = next((who for who, state in states.items() if state == "holds"), None) or _silent_holder(team)
    waiting = sum(state == "waits" for state in states.values())
    return f"{holder} holds, {waiting} wait; {timeline.rate(monotonic())} hand-offs/s; balance {timeline.balance}"


def _silent_holder(team: Team) -> str:
    """The holder of the lock while no worker works: a killed or frozen worker has it until its lease is over."""
    last = next(reversed(team.timeline.holds), None)
    if last is not None and not last.ended and last.worker in team.condition:
        return f"{last.who}, {team.condition[last.worker]}, still"
    return "nobody"


def task_state(team: Team, who: str) -> str:
    """The state of a task, in a word: holds, waits, rests, or the trouble of its worker."""
    if (wrong := team.condition.get(who[0])) is not None:
        return wrong
    if who in team.timeline.asked:
        return "waits"
    latest = team.timeline.latest.get(who)
    return "holds" if latest and latest.what in ("holds", "toils", "renewed", "freezes", "wakes", "wrote") else "rests"


def choose(plain: bool) -> Screen:
    """The best that the output can do."""
    dumb = os.environ.get("TERM") == "dumb" or bool(os.environ.get("NO_COLOR"))
    if plain or dumb or not sys.stdout.isatty():
        return Screen()
    try:
        from examples.demo.live import LiveScreen
    except ImportError:
        return Screen()
    return LiveScreen()
