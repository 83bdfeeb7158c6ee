"""
The account: a balance in a plain file, which only correct locking keeps right, and a log to check it against.

A deposit reads the balance, and later writes it back plus one; a write of another task between the two would be lost.
The file protects itself against one thing only, a holder whose lock is over: it keeps the highest token that it was
read with, and refuses a reader or writer with a lower one. The log is only ever appended to, so it counts right even
if the locking is wrong.
"""

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO


class StaleTokenError(Exception):
    """The file has seen a newer token."""

    def __init__(self, token: int, highest: int) -> None:
        super().__init__(f"token {token} is not the newest, {highest}")
        self.token = token
        self.highest = highest


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the log: a write that was accepted or refused, and the highest token before it."""

    token: int
    highest: int
    accepted: bool


class Account:
    """The account in *folder*."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "account.json"
        self._log = folder / "log.jsonl"

    def create(self) -> None:
        """Open an account with nothing in it."""
        self._file.write_text('{"balance": 0, "token": 0}')
        self._log.touch()

    def read(self, token: int) -> int:
        """
        The balance. *token* is registered with it: from now on an older one is refused.

        Raises:
            StaleTokenError: the token is older than the last one.
        """
        with self._locked() as file:
            balance, highest = _load(file)
            if token < highest:
                raise StaleTokenError(token, highest)
            _store(file, balance, token)
            return balance

    def write(self, balance: int, token: int) -> None:
        """
        Replace the balance, if the file has seen no newer token than *token*.

        Raises:
            StaleTokenError: it has seen one; nothing was changed.
        """
        with self._locked() as file:
            _, highest = _load(file)
            accepted = token == highest
            if accepted:
                _store(file, balance, token)
            self._append(Entry(token, highest, accepted))
        if not accepted:
            raise StaleTokenError(token, highest)

    def balance(self) -> int:
        """The balance, for an onlooker who is no holder."""
        with self._locked() as file:
            return _load(file)[0]

    def entries(self) -> list[Entry]:
        """The log."""
        return [Entry(**json.loads(line)) for line in self._log.read_text().splitlines()]

    @contextmanager
    def _locked(self) -> Iterator[IO[str]]:
        """Look and write in one step, as a transaction does in a database."""
        with self._file.open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file

    def _append(self, entry: Entry) -> None:
        with self._log.open("a") as log:
            log.write(json.dumps(asdict(entry)) + "\n")


def _load(file: IO[str]) -> tuple[int, int]:
    """The balance, and the highest token."""
    content = json.load(file)
    return int(content["balance"]), int(content["token"])


def _store(file: IO[str], balance: int, token: int) -> None:
    file.seek(0)
    file.truncate()
    json.dump({"balance": balance, "token": token}, file)
    file.flush()
