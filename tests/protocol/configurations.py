"""The explored configurations, which keep every promise, and switches that break one."""

from collections.abc import Callable
from typing import Any, NamedTuple

from tests.protocol.explorer import Found, Model, explore
from tests.protocol.one_server import OneServer
from tests.protocol.quorum import Quorum
from tests.protocol.quorum_state import QuorumBounds, QuorumRules
from tests.protocol.rules import Bounds, Rules

MOST_STATES = 300_000


class Configuration(NamedTuple):
    """A model within some bounds; *make* it without a rule, if one is named."""

    name: str
    make: Callable[[str | None], Model[Any]]

    def explore(self, without: str | None = None) -> Found:
        """Look at every state, *without* a rule or with all."""
        return explore(self.make(without), MOST_STATES)


class Switch(NamedTuple):
    """Without a *rule* a promise is broken in that configuration."""

    words: str
    rule: str
    configuration: Configuration
    promise: str


def _one_server(name: str, bounds: Bounds) -> Configuration:
    def make(without: str | None) -> OneServer:
        return OneServer(bounds, Rules() if without is None else Rules()._replace(**{without: False}))

    return Configuration(f"one server: {name}", make)


def _quorum(name: str, bounds: QuorumBounds) -> Configuration:
    def make(without: str | None) -> Quorum:
        return Quorum(bounds, QuorumRules() if without is None else QuorumRules()._replace(**{without: False}))

    return Configuration(f"quorum: {name}", make)


CLOCK = _one_server("one acquisition each, the clock moves", Bounds((1, 1), moves_clock=True))
ONE_AFTER_ANOTHER = _one_server("two acquisitions of one client, two copies", Bounds((2, 0), copies=2))
NESTED = _one_server("nested, two copies", Bounds((1, 0), copies=2, nests=True))
FAILOVER = _one_server("a renewal each, a failover", Bounds((1, 1), renewals=1, fails_over=True))
RELEASED_TWICE = _one_server(
    "two tasks of one client, two copies of each release",
    Bounds((1, 1), copies=2, sends_acquires_again=False, are_one_client=True),
)
TOGETHER = _one_server("two tasks of one client, two copies", Bounds((1, 1), copies=2, are_one_client=True))
LOST_GRANTS = _one_server(
    "two tasks of one client, two copies of each release, a failover that loses grants",
    Bounds((1, 1), copies=2, sends_acquires_again=False, are_one_client=True, fails_over=True, loses_grants=True),
)
FORGETFUL = _quorum("one client, any number of others, servers forget", QuorumBounds(has_rivals=True, forgets=True))
RENEWED = _quorum(
    "the same, renewals, the clock of one server moves",
    QuorumBounds(has_rivals=True, forgets=True, renews=True, moves_clock=True),
)
TOKENS = _quorum(
    "two clients, clocks that differ, time stands still, a copy is older than the others",
    QuorumBounds(time_passes=False, has_older_copy=True, ahead=(0, 0, 1)),
)

CONFIGURATIONS = (
    CLOCK,
    _one_server("two acquisitions and one", Bounds((2, 1))),
    _one_server("one acquisition each, two copies", Bounds((1, 1), copies=2)),
    ONE_AFTER_ANOTHER,
    NESTED,
    _one_server("nested, and another client", Bounds((1, 1), nests=True)),
    _one_server("two renewals, two copies", Bounds((1, 0), copies=2, renewals=2)),
    _one_server("a renewal each, the clock moves", Bounds((1, 1), renewals=1, moves_clock=True)),
    FAILOVER,
    RELEASED_TWICE,
    TOGETHER,
    _one_server("three holds in turn, of two tasks of one client", Bounds((2, 1), are_one_client=True)),
    LOST_GRANTS,
    _one_server(
        "three holds in turn, of two tasks of one client, a failover that loses grants",
        Bounds((2, 1), are_one_client=True, fails_over=True, loses_grants=True),
    ),
    _one_server("nested, a failover", Bounds((1, 0), copies=2, nests=True, fails_over=True)),
    _quorum("two clients, the clock of one server moves", QuorumBounds(lease=2, moves_clock=True)),
    FORGETFUL,
    RENEWED,
    TOKENS,
)

SWITCHES = (
    Switch("no margin", "has_margin", CLOCK, "P3"),
    Switch("the deadline is reckoned from the reply", "counts_from_sending", CLOCK, "P3"),
    Switch("changes of the hold count have no step", "has_steps", NESTED, "P2"),
    Switch("no acquisition id, only the owner", "has_acquisition_ids", ONE_AFTER_ANOTHER, "P3"),
    Switch("HINCRBY in place of a count that is set", "sets_counts", NESTED, "P3"),
    Switch("no memory of ends", "remembers_ends", CLOCK, "P5"),
    Switch("an end is forgotten that is needed", "keeps_needed_ends", ONE_AFTER_ANOTHER, "P5"),
    Switch("a clean release where an acquire can be late", "releases_cleanly_what_is_settled", TOGETHER, "P5"),
    Switch("two clean releases of one client at once", "has_one_mark_at_a_time", RELEASED_TWICE, "P5"),
    Switch("a clean release leaves no mark", "moves_marks", RELEASED_TWICE, "P5"),
    Switch("a clean release that frees nothing moves the mark", "moves_only_marks_of_freed", RELEASED_TWICE, "P3"),
    Switch("a later mark is enough", "compares_marks_exactly", RELEASED_TWICE, "P3"),
    Switch("a mark is the token alone", "has_unique_marks", LOST_GRANTS, "P3"),
    Switch("a loss in doubt is not told to the server", "ends_what_is_lost", ONE_AFTER_ANOTHER, "P5"),
    Switch("the token is the clock alone", "raises_tokens", CLOCK, "P11"),
    Switch("a grant counts before the replica has it", "waits_for_replica", FAILOVER, "P3"),
    Switch("a server that has forgotten votes at once", "abstains", FORGETFUL, "P3"),
    Switch("it votes sooner than the longest lease is over", "abstains_for_longest_lease", FORGETFUL, "P3"),
    Switch("one vote is enough", "needs_majority", FORGETFUL, "P3"),
    Switch("one answer to a renewal is enough", "renews_by_majority", RENEWED, "P3"),
    Switch("no margin on a quorum", "has_margin", RENEWED, "P3"),
    Switch("the deadline of a quorum is reckoned from the replies", "counts_from_sending", FORGETFUL, "P3"),
    Switch("tokens are not raised on a majority", "raises_tokens", TOKENS, "P11"),
    Switch("a late server with a greater token confirms", "confirms_equal_tokens", TOKENS, "P11"),
)
