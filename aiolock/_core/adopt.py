"""The adoption of a detached hold: an acquire of its lock."""

from aiolock._backend import Call
from aiolock._core.acquire import Acquisition
from aiolock._core.lease import Lease
from aiolock._core.ticket import Part
from aiolock._errors import LeaseLostError
from aiolock._scripts.replies import Acquired, Granted, Lost, Refused
from aiolock._types import quoted


class TicketAcquisition(Acquisition):
    """An acquire like *acquisition*, of the lock of the detached hold *part*: one try, because waiting cannot help."""

    __slots__ = ("_part",)

    def __init__(self, acquisition: Acquisition, part: Part) -> None:
        lease = None if acquisition._lease.watched else acquisition._lease.length
        super().__init__(acquisition._session, acquisition._want, acquisition._owner, acquisition.record, lease)
        self._part = part

    async def _seek(self, in_a_row: int = 0) -> Lease:
        """Adopt with one try; raises if the ticket cannot be used."""
        if self._held() is not None:
            raise self._already_held_error()
        call = self._submit()
        answer = await call
        self._session.check_open()
        granted = self._grant_in_time(call, answer) if isinstance(answer, Granted) else None
        if granted is not None:
            return granted
        self._note_refusal(call, answer)
        if isinstance(answer, Refused):
            raise self._already_held_error()
        reason = answer.reason if isinstance(answer, Lost) else "expired"
        raise LeaseLostError.of_ticket(self._part.name, self._part.token, reason, self._want.scripts.kind)

    def _submit(self, first: bool = True) -> Call[Acquired]:
        self._may_have_grant = True
        detached, lease = self._part.claim(self._want), self._asked_for()
        self._call = self._session.commands.adopt(self._claimed(), detached, lease)
        return self._call

    def _already_held_error(self) -> RuntimeError:
        """The error for an adopter that holds the same lock already: adopting cannot make a nested hold."""
        name = quoted(self._want.keys.name)
        return RuntimeError(f"lock {name}: this owner holds it already; adopt in another task, or as another owner")
