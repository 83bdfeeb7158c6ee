"""The page of a service's locks: holders, waiters and their times. Plain HTML, without scripts or other requests."""

import asyncio
import os
import socket
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape

from aiolock import AioLockError, ClientStatistics, Holder, Holding, LockActivity, LockClient, Waiting
from aiolock._identity import owner_of

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
}
# Seconds.
_REFRESH = 5
_MOST_NAMES, _MOST_WAITING, _MOST_ASKED = 200, 10, 20
# Seconds, for the question to Redis about holders in other processes.
_PATIENCE = 0.9
# Characters of a name, an owner or a host.
_LONGEST_TEXT = 256
# Seconds from which a time is shown in minutes.
_LONG = 120.0
# The kinds with one holder in Redis that the page may ask for; a `once` may have the name of a lock.
_PLAIN = {"lock", "fair_lock"}

_STYLE = """
:root { color-scheme: light dark }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem; max-width: 75rem }
h1 { margin-bottom: 0 }
table { border-collapse: collapse; width: 100%; table-layout: fixed }
caption { text-align: left; padding: .5rem 0; opacity: .8 }
h1, p, th, td { overflow-wrap: anywhere }
th, td { text-align: left; vertical-align: top; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid #8884 }
.number { width: 4.5rem; font-variant-numeric: tabular-nums }
ol { margin: 0; padding-left: 1.8rem }
@media (max-width: 40rem) {
  body { margin: 1rem }
  thead { display: none }
  tr { display: block; padding: .5rem 0; border-bottom: 1px solid #8884 }
  td { display: block; padding: 0; border: 0 }
  td:nth-child(2)::before { content: "held by: " }
  td.number { width: auto }
  td.number::after { content: " waiting" }
}
"""


async def page_of(locks: LockClient) -> str:
    """The locks and waiters of *locks* now, as HTML."""
    # Locks that have waiters come first, the longest line before the others.
    activity = sorted(locks.activity(), key=lambda each: -len(each.waiting))
    elsewhere = await _holders_elsewhere(locks, [each for each in activity if not each.holding])
    rows = [_row(each, elsewhere.get(each.name) if each.kind in _PLAIN else None) for each in activity[:_MOST_NAMES]]
    return _document(locks._config.client_name, _process(locks), _summary(locks.statistics(), len(activity)), rows)


def _process(locks: LockClient) -> str:
    """The process and the server that the page is about."""
    process = f"Process {os.getpid()} on {_short(socket.gethostname())}, server {_short(locks._where())}"
    return f"{process}, at {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"


async def _holders_elsewhere(locks: LockClient, waited_for: Iterable[LockActivity]) -> dict[str, Holder]:
    """The holders, in other processes, of locks that this process waits for, as far as Redis answers in time."""
    names = [each.name for each in waited_for if each.kind in _PLAIN][:_MOST_ASKED]
    asked = {asyncio.ensure_future(locks.lock(name).holder()): name for name in names}
    if not asked:
        return {}
    try:
        answered, _ = await asyncio.wait(asked, timeout=_PATIENCE)
        known = [each for each in answered if not isinstance(each.exception(), AioLockError)]
        return {asked[each]: holder for each in known if (holder := each.result()) is not None}
    finally:
        for each in asked:
            each.cancel()


def _row(lock: LockActivity, elsewhere: Holder | None) -> str:
    holding = [_holding(each) for each in lock.holding] or [_elsewhere(elsewhere)]
    waiting = [_waiting(each) for each in lock.waiting[:_MOST_WAITING]]
    if (more := len(lock.waiting) - len(waiting)) > 0:
        waiting.append(f"and {more} more")
    kind = lock.kind.replace("_", " ")
    return (
        f"<tr><td><strong>{_short(lock.name)}</strong><br>{kind}</td><td>{'<br>'.join(holding)}</td>"
        f'<td class="number">{len(lock.waiting)}</td><td>{_list(waiting)}</td></tr>'
    )


def _holding(holding: Holding) -> str:
    left = "" if holding.remaining is None else f", {_time(holding.remaining)} of the lease left"
    nested = f", {holding.holds} times" if holding.holds > 1 else ""
    return f"{_who(holding.owner, holding.task)} for {_time(holding.held)}{nested}{left}"


def _elsewhere(holder: Holder | None) -> str:
    if holder is None:
        return "somebody elsewhere, or nobody"
    where = " ".join(str(each) for each in (holder.client_name, holder.host, holder.pid) if each is not None)
    return f"elsewhere: {_short(where or holder.client)}, {_time(holder.remaining)} of the lease left"


def _waiting(waiting: Waiting) -> str:
    return f"{_who(waiting.owner, waiting.task)} for {_time(waiting.waited)}"


def _who(owner: str, task: str | None) -> str:
    return _short(f"task {task}" if task is not None else f"owner {owner_of(owner).text}")


def _short(text: str) -> str:
    """The beginning of *text* as HTML, isolated so that it cannot change the direction of text around it."""
    return f"<bdi>{_cut(text)}</bdi>"


def _cut(text: str) -> str:
    return escape(text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 1]}…")


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < _LONG else f"{seconds / 60:.0f} min"


def _list(items: Sequence[str]) -> str:
    return f"<ol>{''.join(f'<li>{item}</li>' for item in items)}</ol>" if items else ""


def _summary(statistics: ClientStatistics, names: int) -> str:
    shown = "" if names <= _MOST_NAMES else f" Shown are {_MOST_NAMES} of {names} names."
    return (
        f"{statistics.held} held, {statistics.parked} waiting, {statistics.losses} lost since the start, "
        f"{statistics.connections} connections.{shown}"
    )


def _document(name: str | None, process: str, summary: str, rows: Sequence[str]) -> str:
    title, heading = ("Locks", "Locks") if name is None else (f"Locks of {_cut(name)}", f"Locks of {_short(name)}")
    body = "".join(rows) or '<tr><td colspan="4">Nobody holds or waits.</td></tr>'
    return (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta http-equiv="refresh" content="{_REFRESH}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head><body><h1>{heading}</h1><p>{process}</p><table><caption>{summary}</caption>"
        '<thead><tr><th>Lock</th><th>Held by</th><th class="number">Waiting</th><th>Who waits</th></tr></thead>'
        f"<tbody>{body}</tbody></table></body></html>\n"
    )
