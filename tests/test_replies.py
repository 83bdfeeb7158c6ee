"""The decoded replies of the scripts; and replies that no script of ours gives."""

from typing import Any

import pytest

from aiolock import BackendError
from aiolock._embedded_server import Server
from aiolock._scripts import (
    ACQUIRE,
    COUNT_DOWN,
    DRAIN,
    FAIR,
    INSPECT,
    INSPECT_COUNTING_SEMAPHORE,
    INSPECT_PERMITS,
    ONCE,
    PERMIT,
    QUORUM_ACQUIRE,
    READ,
    READ_MARK,
    RELEASE,
    RENEW,
    SLOT,
    WAIT,
    Script,
)
from aiolock._scripts.replies import (
    Abstains,
    Applied,
    Done,
    Granted,
    Longer,
    Lost,
    NotALock,
    Permits,
    Refused,
    SeenHold,
    Stale,
    was_done,
)
from tests.support.inside import submit
from tests.test_backend import backend_of, made_of


@pytest.mark.parametrize(
    ("script", "reply", "answer"),
    [
        (ACQUIRE, [1, 5, 9000], Granted(5, 9)),
        (ACQUIRE, [0, 0, 9000], Refused(9)),
        (ACQUIRE, [-1, 4, 0], Lost("forced")),
        (ACQUIRE, [-2, 0, 0], Stale()),
        (ACQUIRE, [-3, 0, 0], NotALock()),
        (READ.acquire, [1, 5, 9000, 100], Granted(5, 9, others_after=0.1)),
        (READ.acquire, [0, 0, 9000, 1], Refused(9, has_turn=True)),
        (PERMIT.acquire, [1, 5, 9000, 100, 2], Granted(5, 9, others_after=0.1, free=2)),
        (PERMIT.acquire, [0, 77, 9000, 1], Refused(9, arrived=77, has_turn=True)),
        (FAIR.acquire, [1, 5, 9000, 100, 0], Granted(5, 9, others_after=0.1, leads=False)),
        (FAIR.acquire, [0, 77, 9000, 1, 1], Refused(9, arrived=77, has_turn=True, leads=True)),
        (FAIR.acquire, [0, 0, 9000], Refused(9)),
        (ONCE.acquire, [2, 0, 9000, b"sdone"], Done(b"sdone")),
        (ONCE.acquire, [1, 5, 9000], Granted(5, 9)),
        (WAIT, [1, 0, 0], Granted(0, 0)),
        (WAIT, [0, 3, 5000], Refused(5, count=3)),
        (QUORUM_ACQUIRE, [0, 0, 9000, b"a:1"], Refused(9, holder=b"a:1")),
        (QUORUM_ACQUIRE, [0, 0, 9000], Refused(9)),
        (QUORUM_ACQUIRE, [-4, 0, 9000], Abstains(9)),
        (QUORUM_ACQUIRE, [-5, 0, 9000], Longer(9)),
        (QUORUM_ACQUIRE, [1, 5, 9000], Granted(5, 9)),
        (RENEW, [[1, 5, 9000], [-1, 3, 0]], [Granted(5, 9), Lost("taken")]),
        (RELEASE, [1, 2, 0], Applied(2)),
        (RELEASE, [-1, 2, 0], Lost("expired")),
        (COUNT_DOWN, [0, 0, 0], Refused(0)),
        (DRAIN, [1, 7, 0], Applied(7)),
        (INSPECT, [1], []),
        (INSPECT, [1, b"a:1", 2, 9000], [SeenHold("a:1", 2, 9)]),
        (INSPECT, [-3], NotALock()),
        (INSPECT_PERMITS, [1, 3, 1, b"a:1#1#1", 9000], Permits(3, 1, [(b"a:1#1#1", 9)])),
        (INSPECT_COUNTING_SEMAPHORE, [0, 0, 0], Permits(None, 0, [])),
        (READ_MARK, [None], [None]),
        (READ_MARK, [b"a trace"], ["a trace"]),
        (SLOT, [12, 500], (12, 0.5)),
    ],
)
def test_a_reply_is_decoded_as_the_header_of_its_script_has_it(
    script: Script, reply: list[Any], answer: object
) -> None:
    assert script.decode(reply) == answer


def test_an_answer_for_several_holds_says_that_something_was_done_if_one_of_them_is_granted() -> None:
    assert was_done([Lost("taken"), Granted(5, 9)])
    assert not was_done([Lost("taken"), Lost("taken")])
    assert was_done(Granted(5, 9))
    assert was_done(Applied(1))
    assert not was_done(Refused(9))


@pytest.mark.parametrize("source", ["return {}", "return {9, 0, 0}", "return {'a', 0}", "return {1, 5, 'soon'}"])
async def test_a_reply_that_no_script_gives_fails_its_call_and_no_other(server: Server, source: str) -> None:
    odd = made_of(source, decode=ACQUIRE.decode)
    async with backend_of(server.url) as backend:
        with pytest.raises(BackendError, match="the server answered with"):
            await submit(backend, odd, ("a",))
        assert await submit(backend, made_of("return {1, 5, 9000}", decode=ACQUIRE.decode), ("a",)) == Granted(5, 9)
