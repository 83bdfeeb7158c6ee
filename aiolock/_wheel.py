"""A timing wheel: one timer of the event loop for everything that is due within the same moment."""

import asyncio
from collections.abc import Callable, Hashable
from contextvars import Context
from time import monotonic
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)


class Wheel(Generic[Item]):
    """
    Calls *due* with a list of the items whose time has come, at most *grain* seconds late.

    It is to take them from the list one by one: if it fails, it is called again with those that it left.
    However many items there are, each grain of time costs one timer; and an item that is soon removed, hardly more than
    two look-ups.
    """

    def __init__(self, due: Callable[[list[Item]], object], grain: float) -> None:
        self._due = due
        self._grain = grain
        self._loop = asyncio.get_running_loop()
        self._context = Context()  # Of the timers: what the user's tasks carry is not kept alive by them.
        # Invariant: an item is in one slot at most. A slot has a timer, and items; only `_last` may have none, which
        # spares the next item the making of a timer.
        self._slots: dict[int, tuple[dict[Item, None], asyncio.TimerHandle]] = {}
        self._last = 0  # The slot that became empty last.

    def add(self, item: Item, when: float) -> int:
        """Call *due* with *item*, among others, at *when* (monotonic clock); returns its slot, for `remove`."""
        number = int(when / self._grain) + 1
        slot = self._slots.get(number)
        if slot is None:
            delay = number * self._grain - monotonic()
            timer = self._loop.call_later(delay, self._turn, number, context=self._context)
            slot = self._slots[number] = ({}, timer)
        slot[0][item] = None
        return number

    def remove(self, item: Item, number: int) -> None:
        """Forget *item*, which was put into slot *number*, unless its time has come."""
        if number not in self._slots:
            return
        items, _ = self._slots[number]
        del items[item]
        if not items and number != self._last:
            self.tidy()
            self._last = number

    def tidy(self) -> None:
        """Keep no timer that nothing needs."""
        items, timer = self._slots.get(self._last, (None, None))
        if timer is not None and not items:
            timer.cancel()
            del self._slots[self._last]

    def _turn(self, number: int) -> None:
        self._call_due(list(self._slots.pop(number)[0]))

    def _call_due(self, items: list[Item]) -> None:
        try:
            self._due(items)
        finally:
            if items:
                self._loop.call_soon(self._call_due, items, context=self._context)
