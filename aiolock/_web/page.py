"""The page of a service's locks: who holds, who waits, for how long. HTML and nothing else: it fetches nothing."""

import asyncio
from collections.abc import Iterable, Sequence
from html import escape

from aiolock import AioLockError, ClientStatistics, Holder, Holding, LockActivity, LockClient, Waiting

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
}
_REFRESH = 5  # Seconds.
_MOST_NAMES, _MOST_WAITING, _MOST_ASKED = 200, 10, 20
_PATIENCE = 0.9  # Seconds, to learn who holds elsewhere.
_LONG = 120.0  # Seconds that are told as minutes.
_PLAIN = {"lock", "fair_lock"}  # Of which Redis knows one holder; what runs once may have their name.

_STYLE = """
:root { color-scheme: light dark }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem; max-width: 75rem }
table { border-collapse: collapse; width: 100% }
caption { text-align: left; padding-bottom: .5rem; opacity: .8 }
th, td { text-align: left; vertical-align: top; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid #8884 }
td.time { font-variant-numeric: tabular-nums; white-space: nowrap }
ol { margin: 0; padding-left: 1.2rem }
"""


async def page_of(locks: LockClient) -> str:
    """What *locks* does right now."""
    # What is waited for first, and of that what the most wait for.
    activity = sorted(locks.activity(), key=lambda each: -len(each.waiting))
    elsewhere = await _holders_elsewhere(locks, [each for each in activity if not each.holding])
    rows = [_row(each, elsewhere.get(each.name) if each.kind in _PLAIN else None) for each in activity[:_MOST_NAMES]]
    return _document(_summary(locks.statistics(), len(activity)), rows)


async def _holders_elsewhere(locks: LockClient, waited_for: Iterable[LockActivity]) -> dict[str, Holder]:
    """Who holds, in other processes, what is waited for here, as far as Redis says so soon."""
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
        f"<tr><td><strong>{escape(lock.name)}</strong><br>{kind}</td><td>{'<br>'.join(holding)}</td>"
        f'<td class="time">{len(lock.waiting)}</td><td>{_list(waiting)}</td></tr>'
    )


def _holding(holding: Holding) -> str:
    left = "" if holding.remaining is None else f", {_time(holding.remaining)} of the lease left"
    nested = f", {holding.holds} times" if holding.holds > 1 else ""
    return f"{_who(holding.owner, holding.task)} for {_time(holding.held)}{nested}{left}"


def _elsewhere(holder: Holder | None) -> str:
    if holder is None:
        return "somebody elsewhere, or nobody"
    where = " ".join(str(each) for each in (holder.client_name, holder.host, holder.pid) if each is not None)
    return f"elsewhere: {escape(where or holder.client)}, {_time(holder.remaining)} of the lease left"


def _waiting(waiting: Waiting) -> str:
    return f"{_who(waiting.owner, waiting.task)} for {_time(waiting.waited)}"


def _who(owner: str, task: str | None) -> str:
    _, _, name = owner.partition(":")
    return escape(f"task {task}" if task is not None else f"owner {name.removeprefix('named:')}")


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


def _document(summary: str, rows: Sequence[str]) -> str:
    body = "".join(rows) or '<tr><td colspan="4">Nobody holds or waits.</td></tr>'
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Locks</title>'
        f'<meta http-equiv="refresh" content="{_REFRESH}"><meta name="viewport" content="width=device-width">'
        f"<style>{_STYLE}</style></head><body><h1>Locks of this process</h1><table><caption>{summary}</caption>"
        "<thead><tr><th>Lock</th><th>Held by</th><th>Waiting</th><th>Who waits</th></tr></thead>"
        f"<tbody>{body}</tbody></table></body></html>\n"
    )
