"""The picture of the present moment under the story, on a terminal, by rich."""

from time import monotonic
from types import TracebackType
from typing import Self

from rich.box import ROUNDED
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from examples.demo.protocol import TASKS
from examples.demo.screen import WIDTH, Screen, task_state
from examples.demo.team import NAMES, Team

_STYLES = {"holds": "bold green", "waits": "yellow", "rests": "dim", "killed": "bold red", "frozen": "bold magenta"}
_MARKS = {"holds": "●", "waits": "·", "rests": " ", "killed": "✗", "frozen": "❚"}


class LiveScreen(Screen):
    """The story scrolls; the picture stays below it, until the end."""

    interval = 0.1

    def __init__(self) -> None:
        super().__init__()
        self._console = Console(highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def line(self, text: str = "", style: str = "") -> None:
        self._console.print(Text(text, style=style), soft_wrap=True)

    def show(self, team: Team) -> None:
        self._live.update(picture(team), refresh=True)


def picture(team: Team) -> Panel:
    """The workers, and under them the figures."""
    width = min(WIDTH, 80)
    return Panel(Group(_workers(team), _figures(team)), box=ROUNDED, width=width, border_style="blue", padding=(0, 1))


def _workers(team: Team) -> Table:
    table = Table(box=None, expand=True, pad_edge=False, show_header=False)
    table.add_column(width=10)
    table.add_column(width=12, style="dim")
    for _ in TASKS:
        table.add_column(ratio=1)
    for name in NAMES:
        table.add_row(f"worker {name}", f"pid {team.pid(name)}", *(_task(team, name + task) for task in TASKS))
    return table


def _task(team: Team, who: str) -> Text:
    state = task_state(team, who)
    text = f"{_MARKS[state]} {who} {state}"
    if state == "waits":
        text += f" {monotonic() - team.timeline.asked.get(who, monotonic()):.1f} s"
    return Text(text, style=_STYLES[state])


def _figures(team: Team) -> Table:
    timeline = team.timeline
    table = Table.grid(expand=True)
    for _ in range(3):
        table.add_column(ratio=1)
    token = timeline.holds[-1].token if timeline.holds else 0
    rate = timeline.rate(monotonic())
    table.add_row()
    table.add_row(
        Text.assemble("balance ", (str(timeline.balance), "bold")),
        Text.assemble((str(rate), "bold"), " hand-offs/s"),
        Text.assemble("token ", (str(token), "bold")),
    )
    return table
