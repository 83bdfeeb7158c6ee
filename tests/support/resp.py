"""Just enough of the Redis protocol to split a stream into frames: requests, and replies of RESP2 and RESP3."""

import re

_LINES = b"+-:_,#("
_BLOBS = b"$=!"
_VALUES_PER_ENTRY = {ord("*"): 1, ord("~"): 1, ord(">"): 1, ord("%"): 2, ord("|"): 2}
_ATTRIBUTE = ord("|")
_EOL = b"\r\n"

_FIRST_WORD = re.compile(rb"[*>]\d+\r\n\$\d+\r\n([^\r]*)\r\n")
_MESSAGES = frozenset({b"message", b"pmessage", b"smessage"})
SUBSCRIBING = frozenset({b"SUBSCRIBE", b"PSUBSCRIBE", b"SSUBSCRIBE"})
_UNSUBSCRIBING = frozenset({b"UNSUBSCRIBE", b"PUNSUBSCRIBE", b"SUNSUBSCRIBE"})
_CONFIRMATIONS = frozenset(word.lower() for word in SUBSCRIBING | _UNSUBSCRIBING)


class Frames:
    """Collects chunks as they arrive and gives out the complete frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take a chunk; return the frames that it completed."""
        self._buffer += chunk
        frames, start = [], 0
        while (end := end_of_frame(self._buffer, start)) is not None:
            frames.append(bytes(self._buffer[start:end]))
            start = end
        del self._buffer[:start]
        return frames


def end_of_frame(data: bytes | bytearray, start: int = 0) -> int | None:
    """The end of the frame that begins at `start`, or None if it is not complete.

    Only the end is needed, so nesting needs no stack: an aggregate adds its entries to the values still missing.
    """
    missing = 1
    while missing:
        eol = data.find(_EOL, start)
        if eol < 0:
            return None
        kind, missing = data[start], missing - 1
        if kind in _BLOBS:
            length = int(data[start + 1 : eol])
            eol += length + len(_EOL) if length >= 0 else 0
        elif kind in _VALUES_PER_ENTRY:
            missing += max(0, int(data[start + 1 : eol])) * _VALUES_PER_ENTRY[kind] + (kind == _ATTRIBUTE)
        elif kind not in _LINES:
            raise ValueError(f"not RESP: {bytes(data[start:eol])!r}")
        start = eol + len(_EOL)
    return start if start <= len(data) else None


def arguments(frame: bytes) -> tuple[bytes, ...]:
    """The words of a request: an array of bulk strings."""
    words, at = [], frame.index(_EOL) + len(_EOL)
    while at < len(frame):
        eol = frame.index(_EOL, at)
        begin = eol + len(_EOL)
        end = begin + int(frame[at + 1 : eol])
        words.append(frame[begin:end])
        at = end + len(_EOL)
    return tuple(words)


def frames_in_reply(args: tuple[bytes, ...]) -> int:
    """The number of frames that answer this request: one, but one per channel for (un)subscribing."""
    return max(1, len(args) - 1) if args[0].upper() in SUBSCRIBING | _UNSUBSCRIBING else 1


def is_error(frame: bytes) -> bool:
    """Whether the frame is an error reply."""
    return frame[:1] in (b"-", b"!")


def is_message(frame: bytes) -> bool:
    """Whether the frame, seen on a pub/sub connection, carries a published message."""
    return _first_word(frame) in _MESSAGES


def is_unsolicited(frame: bytes, subscriber: bool) -> bool:
    """Whether the frame answers no request: a message, or any push other than the confirmation of a subscription."""
    if frame[:1] == b">":
        return _first_word(frame) not in _CONFIRMATIONS
    return subscriber and is_message(frame)


def _first_word(frame: bytes) -> bytes:
    match = _FIRST_WORD.match(frame)
    return match[1] if match else b""
