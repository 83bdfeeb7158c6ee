"""
The data of a hold: its leases, its bodies, its deadline, and what follows from them. The module `hold` has its actions.

The commands and the reports read these data, and are above this module.
"""

from enum import Enum
from operator import attrgetter
from time import monotonic
from typing import Any, ClassVar, NamedTuple, cast

from aiolock._backend import Argument, Delivery
from aiolock._core.owners import is_named
from aiolock._core.watch import Watch
from aiolock._errors import LossReason
from aiolock._keys import LockKeys
from aiolock._scripts import Claim
from aiolock._scripts.replies import Lost
from aiolock._types import LockKind

# If the user has cancelled a body, and the lock is lost meanwhile, the body has this long for its cleanup, in seconds.
# The guard begins to look at the bodies this long before the deadline, to see the user's cancellation before the loss.
CLEANUP = 0.5


class DoneError(Exception):
    """The body of a `once` has run, with this *outcome*, so nothing can be acquired any more."""

    def __init__(self, outcome: bytes) -> None:
        super().__init__(outcome)
        self.outcome = outcome


class State(Enum):
    """The states of a hold."""

    LIVE = "live"
    UNWINDING = "unwinding"
    GIVEN_BACK = "given back"
    LOST = "lost"
    GONE = "gone"


# Before Python 3.12, it takes long to find a member in its class.
LIVE, UNWINDING, GIVEN_BACK, LOST, GONE = State


class Body:
    """A piece of work under a hold, which a loss cancels."""

    __slots__ = ()

    lease: Any
    """The lease under which it runs."""
    is_block: ClassVar[bool] = False
    """Whether it is an `async with`, which gives its lease back."""
    is_work: ClassVar[bool] = False
    """Whether it is the work of a leader's term."""

    @property
    def has_lost_its_task(self) -> bool:
        """Whether the task that entered it has ended or was destroyed."""
        return True

    def cancel_if_lost(self) -> None:
        """Cancel the work, because the lock is lost."""
        raise NotImplementedError

    def look(self, due: float) -> None:
        """Note the state of the work, because the end of the hold may be near; the call was due at *due*."""


class Remains(NamedTuple):
    """A field without an owner, which a release leaves in the lock's place until a given time."""

    field: str
    value: Argument
    until: float
    """On the monotonic clock."""
    late: bool = False
    """Whether the field is left even after the end of the lease, if the lock was granted to nobody else."""
    old: tuple[str, float] | None = None
    """A further key that gets the field, and the later time until which the field stays there."""

    @property
    def ends(self) -> float:
        """The time from which nothing of it stays."""
        return self.until if self.old is None else self.old[1]


class Renewal(NamedTuple):
    """The renewal of one hold."""

    claim: Claim
    number: int | None
    """Greater than that of each earlier renewal of the hold; ``None`` for a detached hold, which has no numbers."""
    seconds: float
    """The time for which the hold is to live from now."""


class Held:
    """The readable part of a hold, which is a granted acquisition; `Hold` sets all of it."""

    __slots__ = (
        *("bodies", "claim", "deadline", "delivery", "expires", "confirmed_at", "leases", "loss", "orphan_of"),
        *("remains", "since", "state", "step", "token", "open_changes", "watch"),
    )

    claim: Claim
    token: int
    since: float
    """The time of the grant, on the monotonic clock."""
    state: State
    loss: LossReason | None
    """The reason of the loss, once the user has been told about it."""
    orphan_of: str | None
    """The name of the task that acquired the lock, once that task has ended without releasing it."""
    # Leases, which are above this module.
    leases: list[Any]
    bodies: list[Body]
    step: int
    """The number of the last change of the hold count that was sent; the acquire itself is number 1."""
    open_changes: int
    """How many changes of the hold count have no answer yet, or may still arrive a second time."""
    delivery: Delivery | None
    """The delivery of the granted acquire, if several servers keep the lock."""
    remains: Remains | None
    confirmed_at: float
    """When the last command was sent whose answer had the key's time to live (monotonic clock)."""
    expires: float
    """The time until which the server surely keeps the key (monotonic clock)."""
    deadline: float
    """The time from which the hold counts as ended (monotonic clock)."""
    watch: Watch

    # Read at each step: a property of an `attrgetter` costs no Python frame.
    keys: LockKeys = cast("LockKeys", property(attrgetter("claim.want.keys")))
    """The keys of the lock."""
    owner: str = cast("str", property(attrgetter("claim.owner")))
    """The id of its owner."""

    @property
    def kind(self) -> LockKind:
        """The kind of its primitive."""
        return self.claim.want.scripts.kind

    @property
    def ended(self) -> bool:
        """Whether the hold was given back, or is lost for good."""
        return self.state is not LIVE and self.state is not UNWINDING

    @property
    def over(self) -> bool:
        """Whether the lock is lost for its user, by the clock or by an answer of the server."""
        return self.loss is not None or self.expired

    @property
    def expired(self) -> bool:
        """Whether the deadline has passed, even if no timer has noticed that yet."""
        return monotonic() >= self.deadline and not self.ended

    @property
    def may_be_kept(self) -> bool:
        """Whether the server may still have the key, by the commands that were sent."""
        return monotonic() < max(self.expires, self.watch.asked_until)

    @property
    def ran_out(self) -> bool:
        """Whether it ended as the user wanted: the watchdog renews none of its leases, and no block runs under it."""
        return monotonic() >= self.deadline and not any(lease.watched or lease._scoped for lease in self.leases)

    @property
    def is_awaited(self) -> bool:
        """Whether a live task is going to release it: the owner, or a task inside one of its blocks."""
        return not is_named(self.owner) or any(not body.has_lost_its_task for body in self.bodies)

    @property
    def has_body(self) -> bool:
        """Whether a task inside one of its blocks, or one that is just leaving a block, will give it back."""
        if self.in_use:
            return True
        # A block that a task is leaving has no body any more, and the block of a thread never had one, but both have a
        # scoped lease.
        blocks = sum(lease._scoped for lease in self.leases)
        return self.orphan_of is None and blocks > sum(body.is_block for body in self.bodies)

    @property
    def in_use(self) -> bool:
        """Whether a live task is inside one of its blocks."""
        return any(not body.has_lost_its_task for body in self.bodies)

    def has_work_under(self, lease: object) -> bool:
        """Whether work of a term runs under *lease*; others must not get the lock before this work has ended."""
        return any(not work.has_lost_its_task for work in self._works(lease))

    def has_term(self, lease: object) -> bool:
        """Whether *lease* is that of a leader's term which is not over."""
        return bool(self._works(lease))

    def _works(self, lease: object) -> list[Body]:
        return [body for body in self.bodies if body.lease is lease and body.is_work]

    def was_lost_before(self, answer: Lost) -> bool:
        """
        Whether the lock was lost before its release, if the server's *answer* to the release was that it had no lock.

        If this answer comes before the deadline, the key was gone too early. If it comes later, the release may have
        arrived after the natural end of the lease: this is no loss, because the work under the lock had ended.
        """
        now = monotonic()
        if self.leases or answer.reason == "forced" or now < self.deadline:
            return True
        # The release could not leave its remains.
        return self.remains is not None and now < self.remains.ends
