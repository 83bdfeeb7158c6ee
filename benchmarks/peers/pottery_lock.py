"""`pottery.AIORedlock`: Redlock on one master, polls after a random time below 0.2 s, renewed by hand only."""

from pottery import AIORedlock

from benchmarks.peers.adapter import Lock, RedisPeer


class Pottery(RedisPeer):
    """One lock object for each task: an object that two tasks contend with forgets its holder."""

    poll = 0.2

    def lock(self, name: str) -> Lock:
        lock: Lock = AIORedlock(key=name, masters={self.redis}, auto_release_time=self.lease)
        return lock
