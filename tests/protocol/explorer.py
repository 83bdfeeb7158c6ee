"""Every state that a model can reach, in order of distance from the first one."""

from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

S = TypeVar("S", bound=Hashable)


class Model(Protocol[S]):
    """The possible events, and the states that must never be."""

    def first(self) -> S:
        """The state in which everything begins."""

    def steps(self, state: S) -> Iterable[tuple[str, S]]:
        """The possible events in *state*, in words, each with the state that follows."""

    def broken(self, state: S) -> str | None:
        """The promise that *state* breaks, with a description; ``None`` if it breaks none."""


@dataclass(frozen=True)
class Found:
    """The result of an exploration."""

    states: int
    broken: str | None
    """The first promise that is broken, on a shortest way."""
    way: tuple[str, ...]
    """The events up to the broken promise."""


def explore(model: Model[S], most: int) -> Found:
    """
    Look at every state until one breaks a promise.

    Raises:
        MemoryError: there are more than *most* states, so that the bounds of the model are too wide.
    """
    first = model.first()
    came_from: dict[S, tuple[S, str] | None] = {first: None}
    waiting = deque([first])
    while waiting:
        state = waiting.popleft()
        for words, following in model.steps(state):
            if following in came_from:
                continue
            came_from[following] = (state, words)
            if (broken := model.broken(following)) is not None:
                return Found(len(came_from), broken, _way(came_from, following))
            waiting.append(following)
        if len(came_from) > most:
            raise MemoryError(f"more than {most} states: the bounds of the model are too wide")
    return Found(len(came_from), None, ())


def _way(came_from: dict[S, tuple[S, str] | None], state: S) -> tuple[str, ...]:
    words = []
    while (step := came_from[state]) is not None:
        state, said = step
        words.append(said)
    return tuple(reversed(words))
