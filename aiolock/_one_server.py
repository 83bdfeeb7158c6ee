"""One server: that of an address, or whichever the Sentinels name."""

from collections.abc import Callable, Iterable
from typing import Any

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ResponseError

from aiolock._call import Call
from aiolock._config import Timing
from aiolock._kind import GREETING, refusal
from aiolock._lane import Question, Traffic
from aiolock._lanes import Lanes
from aiolock._notifier import Notifier
from aiolock._primary import PrimaryWatch
from aiolock._sentinels import Address, Guide, Sentinels


class OneServer:
    """The topology of one server, which may become another one behind the same address."""

    apart = False
    publish = "PUBLISH"

    def __init__(
        self, connect: Callable[[], AbstractConnection], timing: Timing, sentinels: Sentinels | None = None
    ) -> None:
        self.traffic: Traffic = Traffic()
        self._lanes = Lanes(connect, self, timing, self.traffic)
        self._peer: object = None  # Who answered last.
        self._is_known = False  # It said that it is by itself, or would not say.
        self.notifier = Notifier(connect, patience=timing.patience)
        self._watch = None if sentinels is None else PrimaryWatch(sentinels, self._primary_is)
        self.doubted: Callable[[Callable[[str], bool]], object] = lambda had: None

    def lanes_of(self, keys: tuple[str, ...]) -> Lanes:
        return self._lanes

    def lanes(self) -> Iterable[Lanes]:
        return (self._lanes,)

    async def aclose(self) -> None:
        if self._watch is not None:
            await self._watch.aclose()
        await self.notifier.aclose()
        await self._lanes.aclose()

    # What a lane asks for.

    @property
    def question(self) -> Question | None:
        return None if self._is_known else (GREETING, self._greeted)

    @property
    def settled(self) -> bool:
        return self._watch is None or self._watch.certain

    def opened(self, peer: object) -> None:
        if self._peer not in (None, peer):  # Messages of another server would not arrive on the old one.
            self.notifier.link.fail()
        self._peer = peer
        if self._watch is not None:  # Where it leads to was told before it was made.
            self._watch.ask()

    def redirected(self, call: Call, error: ResponseError) -> bool:
        return False

    def broken(self) -> None:
        self.doubted(lambda key: True)

    def _primary_is(self, address: Address, asked: float) -> None:
        """Leave any other server that a connection was told before the Sentinels were *asked*."""
        for link in (self.notifier.link, *self._lanes.links):
            guide = Guide.of(link.connection)
            if guide is not None and guide.asked < asked and guide.told != address:
                link.fail()

    def _greeted(self, answer: Any) -> None:
        if (why := refusal(answer, in_a_cluster=False)) is None:
            self._is_known = True
        else:
            self._lanes.refuse(why)
