"""
Urgent calls, which must not wait behind others, and their connections.

An urgent call is sent on the connection for urgent calls. If this connection is not open, or does not answer in time,
the call is sent on the ordinary connection, too, and the first answer counts. So one open connection is enough. Every
script may be sent twice.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context
from time import monotonic

from redis.exceptions import ResponseError

from aiolock._backend import Call
from aiolock._redis.pipeline import Pipeline


class UrgentCopy(Call):
    """A copy of an urgent call: copies are sent, their *original* is not."""

    __slots__ = ("original",)

    def __init__(self, original: Call) -> None:
        super().__init__(original.script, original.keys, original.args, original.deadline, original.resend_until)
        self.asking = original.asking
        self.hops = original.hops
        self.original = original

    def note(self, trouble: Exception) -> None:
        super().note(trouble)
        self.original.note(trouble)


class UrgentCall:
    """
    An urgent *call*, which is sent on *urgent*, and without an answer within *seconds* also on *ordinary*.

    *over* is called when the call has ended.
    """

    # Invariant: until the call has ended, a copy is in one of the pipelines.

    def __init__(
        self, call: Call, urgent: Pipeline, ordinary: Pipeline, seconds: float, over: Callable[[Call], object]
    ) -> None:
        self._call = call
        self._urgent = urgent
        self._ordinary = ordinary
        self._over = over
        self._copies: dict[Pipeline, UrgentCopy] = {}
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(seconds, self._send_by, ordinary, context=Context())

    def send(self) -> None:
        """Send the call."""
        if self._urgent.connection.connected:
            self._send_by(self._urgent)
        else:
            self._send_by(self._ordinary, self._urgent)

    def withdraw(self) -> bool:
        """Do not send the call; ``False`` if a copy has been sent."""
        if any(copy.sent for copy in self._copies.values()):
            return False
        self.leave()
        return True

    def leave(self) -> None:
        """Stop the copies, because the call has ended, goes to another server, or is withdrawn."""
        self._timer.cancel()
        self._over(self._call)
        for pipeline, copy in self._copies.items():
            copy.tell_nobody()
            pipeline.forget(copy)

    def _send_by(self, *pipelines: Pipeline) -> None:
        new = {each: UrgentCopy(self._call) for each in pipelines if each not in self._copies}
        self._copies |= new
        for pipeline, copy in new.items():
            copy.when_ended(self._ended)
            pipeline.submit(copy)

    def _ended(self, copy: Call) -> None:
        if copy.error is None:
            self._end(copy)
        elif self._ordinary not in self._copies and monotonic() < self._call.deadline:
            self._send_by(self._ordinary)
        elif all(each.ended for each in self._copies.values()):
            self._end(max(self._copies.values(), key=_says_more))

    def _end(self, copy: Call) -> None:
        """End the call like *copy*."""
        call = self._call
        sent = [each for each in self._copies.values() if each.sent]
        call.sent, call.short = copy.sent, copy.short
        call.repeated = call.repeated or len(sent) > 1 or any(each.repeated for each in sent)
        self.leave()
        call.end(copy.answer, copy.error)


def _says_more(copy: Call) -> int:
    """The rank of a copy's failure: an error of the server says most, then one of the connection, then a timeout."""
    cause = None if copy.error is None else copy.error.__cause__
    return 2 if isinstance(cause, ResponseError) else int(not isinstance(cause, TimeoutError))
