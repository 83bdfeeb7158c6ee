"""The rules of the protocol that can be taken away one by one, and how far a model looks."""

from typing import NamedTuple

LEASE = 3
MARGIN = 1
# A tick has fewer grants: a token is a time in microseconds.
TOKENS_A_TICK = 10


class Rules(NamedTuple):
    """The protocol has all of these rules; a switch sets one of them to `False`."""

    # A lease ends for the client a margin before the server can end it.
    has_margin: bool = True
    # A lease is counted from when its command was sent, not from when the answer came.
    counts_from_sending: bool = True
    # A change of the hold count has a number, and an earlier change changes nothing.
    has_steps: bool = True
    # The server knows which acquisition holds the lock, not only which owner.
    has_acquisition_ids: bool = True
    # A hold count is set, never added to.
    sets_counts: bool = True
    # The server remembers which acquisitions ended, and how.
    remembers_ends: bool = True
    # The server forgets the end of an acquisition only if no copy of its commands can arrive any more.
    keeps_needed_ends: bool = True
    # A client that loses a lock by its clock tells the server, if a copy of the acquire can arrive yet.
    ends_what_is_lost: bool = True
    # A release is clean, so that no id is remembered, only if no copy of another command of its acquisition can arrive.
    releases_cleanly_what_is_settled: bool = True
    # A client waits for the answer to one clean release at a time.
    has_one_mark_at_a_time: bool = True
    # The server moves the mark of the client when a clean release frees the lock.
    moves_marks: bool = True
    # It moves the mark only then.
    moves_only_marks_of_freed: bool = True
    # A clean release had freed the lock if the mark is equal to its own, not if it is at least that.
    compares_marks_exactly: bool = True
    # Marks differ for any two acquisitions, also where a failover has two tokens alike.
    has_unique_marks: bool = True
    # A token is greater than the last one, even if the clock is not.
    raises_tokens: bool = True
    # A grant counts when the replica has it.
    waits_for_replica: bool = True


class Bounds(NamedTuple):
    """How far a model of one server looks; time has no bound."""

    # How many acquisitions each client begins.
    acquisitions: tuple[int, int]
    # How often a command is sent at most, or a refused acquire asks.
    copies: int = 1
    # Whether a holder acquires a second time.
    nests: bool = False
    # How many renewals are sent for a hold.
    renewals: int = 0
    # Whether the server's clock gains or loses a tick once.
    moves_clock: bool = False
    # Whether the replica becomes the server once, with the data that has reached it.
    fails_over: bool = False
    # Whether acquires are sent again, and not only releases.
    sends_acquires_again: bool = True
    # Whether both clients are tasks of one client, which has one mark.
    are_one_client: bool = False
    # Whether a grant counts before the replica has it: a failover then breaks exclusion, but the answer to a release
    # must still be right.
    loses_grants: bool = False
