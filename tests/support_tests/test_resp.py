"""Streams of the Redis protocol are split into frames, however they are cut into chunks."""

import pytest

from tests.support.resp import Frames, arguments, end_of_frame, frames_in_reply, is_message, is_unsolicited

FRAMES = [
    b"+OK\r\n",
    b"-ERR no\r\n",
    b":42\r\n",
    b"$-1\r\n",
    b"$0\r\n\r\n",
    b"$4\r\na\r\nb\r\n",
    b"*-1\r\n",
    b"*0\r\n",
    b"*2\r\n$1\r\na\r\n*1\r\n:1\r\n",
    b"_\r\n",
    b",1.5\r\n",
    b"#t\r\n",
    b"(3492890328409238509324850943850943825024385\r\n",
    b"!5\r\nERR x\r\n",
    b"=7\r\ntxt:abc\r\n",
    b"%2\r\n+a\r\n:1\r\n+b\r\n*2\r\n:1\r\n:2\r\n",
    b"~2\r\n:1\r\n:2\r\n",
    b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\n0\r\n",
    b"|1\r\n+ttl\r\n:3600\r\n*1\r\n:1\r\n",
]


@pytest.mark.parametrize("frame", FRAMES)
def test_a_frame_ends_where_it_ends(frame: bytes) -> None:
    assert end_of_frame(frame) == len(frame)
    assert [end_of_frame(frame[:length]) for length in range(len(frame))] == [None] * len(frame)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_a_stream_is_split_however_it_is_cut(size: int) -> None:
    stream, frames = b"".join(FRAMES), Frames()
    chunks = [stream[start : start + size] for start in range(0, len(stream), size)]
    assert [frame for chunk in chunks for frame in frames.feed(chunk)] == FRAMES


def test_bytes_that_are_not_the_protocol_are_refused() -> None:
    with pytest.raises(ValueError, match="not RESP: b'PING'"):
        end_of_frame(b"PING\r\n")


def test_arguments_may_hold_anything() -> None:
    assert arguments(b"*3\r\n$3\r\nSET\r\n$0\r\n\r\n$4\r\n\r\n*1\r\n") == (b"SET", b"", b"\r\n*1")


def test_subscribing_is_answered_per_channel() -> None:
    assert frames_in_reply((b"subscribe", b"a", b"b")) == 2
    assert frames_in_reply((b"UNSUBSCRIBE",)) == 1
    assert frames_in_reply((b"MGET", b"a", b"b")) == 1


@pytest.mark.parametrize(
    ("frame", "subscriber", "unsolicited"),
    [
        (b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\n0\r\n", True, True),
        # LRANGE may answer this.
        (b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\n0\r\n", False, False),
        (b"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n", True, False),
        (b">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n", True, False),
        (b">3\r\n$8\r\nsmessage\r\n$1\r\nc\r\n$1\r\n0\r\n", True, True),
        (b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n", False, True),
        (b"+PONG\r\n", True, False),
    ],
)
def test_unsolicited_frames(frame: bytes, subscriber: bool, unsolicited: bool) -> None:
    assert is_unsolicited(frame, subscriber) is unsolicited


def test_messages_of_each_kind() -> None:
    kinds = [b"message", b"pmessage", b"smessage", b"subscribe"]
    frames = [b"*2\r\n$%d\r\n%s\r\n$1\r\n0\r\n" % (len(kind), kind) for kind in kinds]
    assert [is_message(frame) for frame in frames] == [True, True, True, False]
