"""The behaviour of locks, in some thirty lines: the holders on the server, and the knowledge of each owner."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Actor:
    """An owner: a task of a client, or a named owner of it."""

    client: int
    owner: str


@dataclass(slots=True)
class Belief:
    """The holds that an owner knows of, which may be lost already."""

    holds: int
    told_lost: bool = False


@dataclass(slots=True)
class Model:
    """Each method gives the expected result of the call of that name."""

    server: dict[str, Actor] = field(default_factory=dict)
    beliefs: dict[tuple[Actor, str], Belief] = field(default_factory=dict)

    def has(self, actor: Actor, name: str) -> bool:
        return self.server.get(name) == actor

    def count(self, actor: Actor, name: str) -> int:
        return self.beliefs[actor, name].holds if self.has(actor, name) else 0

    def try_lock(self, actor: Actor, name: str) -> str:
        belief = self.beliefs.get((actor, name))
        if belief and not belief.told_lost:
            belief.told_lost = not self.has(actor, name)
            belief.holds += self.has(actor, name)
            return "lost" if belief.told_lost else "nested"
        if name in self.server:
            return "refused"
        self.server[name] = actor
        self.beliefs[actor, name] = Belief(1)
        # The client knows that its other owners lost it.
        for (other, held), theirs in self.beliefs.items():
            theirs.told_lost |= held == name and other != actor and other.client == actor.client
        return "granted"

    def release(self, actor: Actor, name: str) -> str:
        belief = self.beliefs.get((actor, name))
        if belief is None:
            return "not held"
        belief.holds -= 1
        belief.told_lost = belief.told_lost or not self.has(actor, name)
        if belief.holds == 0:
            del self.beliefs[actor, name]
            if not belief.told_lost:
                del self.server[name]
        return "lost" if belief.told_lost else "released"

    def force_release(self, client: int, name: str) -> bool:
        for (actor, held), belief in self.beliefs.items():
            belief.told_lost |= name in self.server and held == name and actor.client == client
        return self.server.pop(name, None) is not None

    def expire(self, name: str) -> None:
        self.server.pop(name, None)

    def restart(self, client: int) -> None:
        self.server = {name: actor for name, actor in self.server.items() if actor.client != client}
        self.beliefs = {key: belief for key, belief in self.beliefs.items() if key[0].client != client}
