"""
The account: a balance in a plain file, which only correct locking keeps right, and a log to check it against.

Whoever deposits reads the balance, and later writes it back plus one; what others wrote in between would be lost.
The file protects itself against one thing only, a writer whose lock is over: it keeps the highest token that it has
seen, and refuses a lower one. The log is only ever appended to, so it counts right even if the locking is wrong.
"""

import fcntl
import json
from dataclasses import asdict, dataclass
from pathlib import Path


class StaleWriteError(Exception):
    """The write came with an older token than the file has seen."""

    def __init__(self, token: int, highest: int) -> None:
        super().__init__(f"token {token} is older than {highest}")
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

    def read(self) -> int:
        """The balance."""
        with self._file.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH)  # Who was paused may be writing, and is refused only after the next write.
            return int(json.load(file)["balance"])

    def write(self, balance: int, token: int) -> None:
        """
        Replace the balance, unless *token* is older than the last.

        Raises:
            StaleWriteError: it is older; nothing was changed.
        """
        with self._file.open("r+") as file:
            # Look and write in one step, as `UPDATE ... WHERE token <= :token` is one in a database.
            fcntl.flock(file, fcntl.LOCK_EX)
            highest = int(json.load(file)["token"])
            if token >= highest:
                file.seek(0)
                file.truncate()
                json.dump({"balance": balance, "token": token}, file)
                file.flush()
            self._append(Entry(token, highest, token >= highest))
        if token < highest:
            raise StaleWriteError(token, highest)

    def entries(self) -> list[Entry]:
        """The log."""
        return [Entry(**json.loads(line)) for line in self._log.read_text().splitlines()]

    def _append(self, entry: Entry) -> None:
        with self._log.open("a") as log:
            log.write(json.dumps(asdict(entry)) + "\n")
