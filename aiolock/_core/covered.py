"""
A hold that a thread renews while the event loop is late with the renewal; see `stand_in`.

The event loop and the thread share the hold without a `threading.Lock`. Only the event loop changes the hold. The
thread reads the hold, and writes its `news`: each time a new immutable value. When the event loop reads the expiry or
the watchdog's memory, it applies the news first. So the news count as soon as a blocked loop goes on, before any timer
of the watchdog runs. The deadline follows from the hold and the news: any thread of the user may check a lease, and may
do so while the event loop applies the news.
"""

from math import inf
from threading import get_ident
from time import monotonic
from typing import Any, NamedTuple, cast

from aiolock._backend import Call
from aiolock._core.hold import ROUNDED, Hold, margin
from aiolock._core.keeper import Keeper
from aiolock._core.renewer import next_number
from aiolock._core.watch import Watch
from aiolock._errors import LossReason
from aiolock._scripts import Claim


class News(NamedTuple):
    """What the thread knows about one hold. Times are on the monotonic clock."""

    number: int
    """The number of the last renewal that the thread sent, or is about to send."""
    acknowledged: int = 0
    """How many of the thread's renewals were acknowledged."""
    sent: float = 0.0
    """The time at which the last acknowledged renewal was sent."""
    left: float = 0.0
    """The seconds of life that this renewal gave the hold."""
    renew_at: float = 0.0
    """The time of the next renewal, after this one."""
    deadline: float = 0.0
    """The time from which the hold counts as ended, after this renewal."""
    failed: Call | None = None
    """The last renewal, if it has no answer that counts."""
    loss: LossReason | None = None
    """The reason of the loss, if the server has answered that it does not have the hold any more."""


def _with_news(slot: str) -> Any:
    """A property whose value is in *slot*; each read in the event loop applies the news first."""

    def read(hold: "CoveredHold") -> Any:
        if hold.news is not hold._taken and get_ident() == hold._thread:
            hold._take_in()
        return getattr(hold, slot)

    def write(hold: "CoveredHold", value: Any) -> None:
        setattr(hold, slot, value)

    return property(read, write)


def _deadline_of(hold: "CoveredHold") -> float:
    """The deadline by the later answer: that of the event loop, or that in the news."""
    news = hold.news
    if news is None:
        return hold._deadline
    if news.loss is not None:
        return min(hold._deadline, hold.since)
    return news.deadline if news.sent >= hold.confirmed_at else hold._deadline


def _set_deadline(hold: "CoveredHold", deadline: float) -> None:
    hold._deadline = deadline


class CoveredHold(Hold):
    """A hold that a thread may renew, too."""

    # Invariant: the thread writes `news`, and nothing else; the event loop writes everything but `news`.
    # Invariant: the thread writes `news` before it checks whether the hold has ended, and the event loop ends a hold
    # before it reads the news. So a hold that ends while the thread renews it counts as one with a renewal on its way:
    # a lost hold is freed on the server in the end, and the server remembers the end of a released one.

    __slots__ = ("_deadline", "_expires", "_taken", "_thread", "_watch", "heard", "news")

    _deadline: float
    _expires: float
    _watch: Watch
    deadline: float = cast("float", property(_deadline_of, _set_deadline))
    expires: float = cast("float", _with_news("_expires"))
    watch: Watch = cast("Watch", _with_news("_watch"))

    def __init__(self, claim: Claim, token: int, keeper: Keeper[Hold], *, repeated: bool = False) -> None:
        self.news: News | None = None
        """What the thread knows about the hold; ``None`` until the thread begins to renew it."""
        self.heard: float = 0.0
        """The last time at which the event loop got an answer about it."""
        self._taken: News | None = None
        self._thread = get_ident()
        super().__init__(claim, token, keeper, repeated=repeated)

    # In the event loop.

    @property
    def why_over(self) -> LossReason:
        return self._loss_in_news or super().why_over

    def extend(self, sent: float, left: float) -> None:
        self.heard = monotonic()
        if self._loss_in_news is None:
            super().extend(sent, left)

    def notice_news(self) -> None:
        """Lose the hold if the thread has noted a loss."""
        if self._loss_in_news is not None and not self.ended:
            self.lose(self._loss_in_news)

    @property
    def _loss_in_news(self) -> LossReason | None:
        return None if self.news is None else self.news.loss

    def _take_in(self) -> None:
        """Apply the news to the hold."""
        news, before = self.news, self._taken or News(0)
        assert news is not None
        if self._taken is None:
            # From now on a renewal of the thread can be on its way.
            self.open_changes += 1
        # The code below reads the properties, which would apply the same news again.
        self._taken = news
        watch = self._watch
        watch.number = max(watch.number, news.number)
        if news.acknowledged > before.acknowledged:
            watch.acknowledged += news.acknowledged - before.acknowledged
            watch.unanswered, watch.call = 0, None
            if news.loss is None:
                super().extend(news.sent, news.left)
        if news.failed is not None and news.failed is not before.failed:
            watch.unanswered, watch.call = watch.unanswered + 1, news.failed

    # In the thread.

    @property
    def renewal_due(self) -> float:
        """The time of the next renewal, by what the event loop and the thread know; infinite for no renewal."""
        watch, news = self._watch, self.news
        if self.ended or not watch.renews:
            return inf
        if news is None:
            return watch.renew_at
        return inf if news.loss is not None else max(watch.renew_at, news.renew_at)

    def announce(self) -> bool:
        """Note that the thread is about to renew the hold; returns whether it may: false if the hold has ended."""
        self.news = (self.news or News(0))._replace(number=self._next_number())
        now, news = monotonic(), self.news
        deadline, expires = max(self._deadline, news.deadline), max(self._expires, news.sent + news.left)
        gains = now + self.renewable(self._keeper.timing.lease) > expires + ROUNDED
        # Otherwise its time is over, or `LockConfig.max_hold` is reached.
        return not self.ended and now < deadline and gains

    def number_renewal(self) -> int:
        """Take a number for the next renewal of the thread, and return it."""
        assert self.news is not None
        self.news = self.news._replace(number=self._next_number())
        return self.news.number

    def note_renewal(self, sent: float, left: float) -> None:
        """Note that a renewal which was sent at *sent* is acknowledged, and gives the hold *left* seconds."""
        assert self.news is not None
        timing = self._keeper.timing
        due = sent + min(timing.renew_interval, left / 2)
        deadline = sent + left - margin(left, timing, len(self._keeper.entries))
        number, acknowledged = self.news.number, self.news.acknowledged + 1
        self.news = News(number, acknowledged, sent, left, due, deadline)

    def note_failure(self, call: Call) -> None:
        """Note that the renewal *call* got no answer, or too few replicas acknowledged it."""
        assert self.news is not None
        self.news = self.news._replace(failed=call)

    def note_loss(self, reason: LossReason) -> None:
        """Note that the server does not have the hold any more."""
        assert self.news is not None
        self.news = self.news._replace(loss=reason)

    def _next_number(self) -> int:
        return next_number(0 if self.news is None else self.news.number)
