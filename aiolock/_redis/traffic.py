"""The numbers of scripts that a client has sent."""

from dataclasses import dataclass


@dataclass(slots=True)
class Traffic:
    """The numbers of scripts that all pipelines of a client have sent so far."""

    batches: int = 0
    commands: int = 0
