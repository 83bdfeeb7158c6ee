"""The effects of the scripts of `aiolock/_scripts/lock`, on one server."""

from tests.protocol.rules import LEASE, Rules
from tests.protocol.state import Answer, End, Lock, Message, Server, owner


class Scripts:
    """The scripts, by the *rules* that they keep; the clients are two, or tasks of one."""

    def __init__(self, rules: Rules, *, are_one_client: bool = False) -> None:
        self._rules = rules
        self._are_one_client = are_one_client

    def execute(self, server: Server, message: Message) -> tuple[Server, Answer]:
        """The server afterwards, and its answer."""
        script = {"acquire": self._acquire, "release": self._release, "renew": self._renew}[message.kind]
        return script(server, message)

    def has(self, lock: Lock | None, acquisition: int) -> bool:
        """`if_held_by`, in lock.lua."""
        if lock is None:
            return False
        if not self._rules.has_acquisition_ids:
            return owner(lock.acquisition) == owner(acquisition)
        return lock.acquisition == acquisition

    def _acquire(self, server: Server, message: Message) -> tuple[Server, Answer]:
        lock = server.lock
        if lock is not None and self.has(lock, message.acquisition):
            lock = self._again(lock, message)
            return server._replace(lock=lock), Answer("granted", lock.left, token=lock.token)
        if message.holds > 1:
            return self._lost(server, message)
        if any(message.acquisition == acquisition for acquisition, _ in server.ends):
            return server, Answer("stale", 0)
        if lock is not None:
            return server, Answer("refused", lock.left)
        token = max(server.token + 1, 0) if self._rules.raises_tokens else 0
        granted = 0 if self._rules.has_unique_marks else server.granted + 1
        lock = Lock(message.acquisition, message.holds, message.step, 0, LEASE, granted)
        return server._replace(lock=lock, token=token, granted=granted), Answer("granted", LEASE, token=granted)

    def _again(self, lock: Lock, message: Message) -> Lock:
        if message.step <= lock.step and self._rules.has_steps:
            return lock
        count = message.holds if self._rules.sets_counts else lock.holds + 1
        return lock._replace(holds=count, step=max(lock.step, message.step), left=max(lock.left, LEASE))

    def _release(self, server: Server, message: Message) -> tuple[Server, Answer]:
        if message.mark:
            return self._release_clean(server, message)
        lock = server.lock
        if lock is not None and self.has(lock, message.acquisition):
            counts = message.step > lock.step or not self._rules.has_steps
            left = message.holds if self._rules.sets_counts or not counts else lock.holds - 1
            if left == 0:
                return self._remember(server._replace(lock=None), message, "freed"), Answer("granted", 0)
            if counts:
                lock = lock._replace(holds=left, step=max(lock.step, message.step))
            return server._replace(lock=lock), Answer("granted", lock.left)
        if (message.acquisition, "freed") in server.ends:
            return server, Answer("granted", 0)
        return self._lost(server, message)

    def _release_clean(self, server: Server, message: Message) -> tuple[Server, Answer]:
        """`release_clean.lua`."""
        if server.lock is not None and self.has(server.lock, message.acquisition):
            return self._marked(server._replace(lock=None), message), Answer("granted", 0)
        mark = server.marks[self._place(message)]
        if mark == message.mark or (mark > message.mark and not self._rules.compares_marks_exactly):
            return server, Answer("granted", 0)
        if not self._rules.moves_only_marks_of_freed:
            server = self._marked(server, message)
        return self._lost(server, message)

    def _place(self, message: Message) -> int:
        return 0 if self._are_one_client else owner(message.acquisition)

    def _marked(self, server: Server, message: Message) -> Server:
        if not self._rules.moves_marks:
            return server
        first, second = server.marks
        return server._replace(marks=(first, message.mark) if self._place(message) else (message.mark, second))

    def _renew(self, server: Server, message: Message) -> tuple[Server, Answer]:
        lock = server.lock
        if lock is None or not self.has(lock, message.acquisition):
            return self._lost(server, message)
        if message.step > lock.renewal:
            lock = lock._replace(renewal=message.step, left=max(lock.left, LEASE))
        return server._replace(lock=lock), Answer("granted", lock.left)

    def _lost(self, server: Server, message: Message) -> tuple[Server, Answer]:
        """`has_ended`, in ends.lua: the first end that is remembered stays."""
        if not any(message.acquisition == acquisition for acquisition, _ in server.ends):
            server = self._remember(server, message, "lost")
        return server, Answer("lost", 0)

    def _remember(self, server: Server, message: Message, how: End) -> Server:
        if not self._rules.remembers_ends:
            return server
        kept = frozenset(end for end in server.ends if end[0] not in (message.forget, message.acquisition))
        return server._replace(ends=kept | {(message.acquisition, how)})
