"""The faults of a seed. A profile names kinds of faults, and the most of each kind."""

import random
from dataclasses import dataclass

# Seconds within which all faults end, after the time in which they begin.
_LAST = 4.0
# Seconds of the leases that a seed may choose for all its clients.
LEASES = (0.6, 2.0, 6.0)

PROFILES: dict[str, dict[str, int]] = {
    "calm": {},
    "network": {"reset": 5, "lose_reply": 4, "half_open": 2, "late": 3, "cut": 2, "slow": 2},
    "late": {"late": 8, "lose_reply": 4, "slow": 2},
    "server": {"restart": 3, "stall": 3, "flush_scripts": 2, "reset": 2},
    "refusals": {"refuse": 5, "no_new_connections": 3, "reset": 2, "lose_reply": 2},
    "connections": {"no_new_connections": 5, "reset": 2, "slow": 1},
    "pauses": {"freeze": 4, "freeze_within": 6},
    "deaths": {"kill": 2, "reset": 2, "freeze_within": 2},
    "forks": {"fork": 4, "reset": 2, "lose_reply": 2, "freeze": 1},
    "clock": {"clock_back": 2, "clock_on": 2, "clock_drifts": 3, "freeze": 1, "reset": 1},
    "shutdown": {"shut_down": 2},
    "storm": {
        **{"reset": 25, "lose_reply": 25, "late": 10, "freeze_within": 8},
        **{"flush_scripts": 5, "restart": 2, "stall": 3},
    },
    "all": {
        **{"reset": 2, "lose_reply": 3, "half_open": 1, "late": 2, "cut": 1, "slow": 1, "restart": 1, "stall": 1},
        **{"flush_scripts": 1, "shut_down": 1, "freeze": 1, "freeze_within": 3, "kill": 1},
        **{"refuse": 1, "no_new_connections": 1},
    },
    # Faults of one server that forgets, as after a failover to a replica that lags behind, or a restart without
    # persistence.
    "data": {"restart_empty": 1, "failover": 2, "lose_reply": 2, "freeze_within": 1},
    "replica": {"failover": 3, "hold_up_replica": 3, "lose_reply": 3, "reset": 2, "late": 2, "freeze_within": 2},
    # Faults of a primary with Sentinels.
    "failovers": {"primary_dies": 2, "primary_replaced": 2, "lose_sentinel": 2},
    "sentinels": {
        **{"lose_sentinel": 2, "lose_sentinels": 2, "cut_from_sentinels": 2, "primary_replaced": 1},
        **{"reset": 2, "lose_reply": 2, "freeze_within": 2},
    },
    "failovers_and_more": {
        **{"primary_dies": 1, "primary_replaced": 2, "hold_up_replica": 2, "cut_from_sentinels": 1},
        **{"lose_reply": 3, "reset": 2, "late": 2, "freeze_within": 2, "freeze": 1},
    },
    # Faults of a cluster.
    "slots": {"slot_moves": 5},
    "shards": {"primary_dies": 1, "primary_replaced": 1, "slot_moves": 1, "slot_splits": 1, "slot_torn": 3},
    "cluster": {
        **{
            "slot_moves": 2,
            "slot_splits": 2,
            "primary_dies": 1,
            "primary_replaced": 1,
            "cluster_down": 1,
            "hold_up_replica": 1,
        },
        **{"lose_reply": 3, "reset": 2, "late": 2, "freeze_within": 2, "freeze": 1},
    },
    # Faults of a quorum, one of whose servers forgets.
    "quorum_data": {"restart_empty": 3, "lose_reply": 2, "freeze_within": 2, "late": 2, "reset": 2},
}
FOR_ALL = (
    *("calm", "network", "late", "server", "refusals", "connections", "pauses", "deaths", "forks", "clock"),
    *("shutdown", "storm", "all"),
)
FOR_ONE_SERVER = (*FOR_ALL, "data", "replica")
FOR_A_QUORUM = (*FOR_ALL, "quorum_data")
FOR_CLUSTERS = (*FOR_ALL, *("slots", "shards", "cluster") * 3)
FOR_SENTINELS = (*FOR_ALL, *("failovers", "sentinels", "failovers_and_more") * 3)


@dataclass(frozen=True)
class Fault:
    at: float
    kind: str
    # The number of the process, server or connection that it strikes, counted round.
    target: int
    lasts: float
    # A number from 0 to 1 for all other choices of the fault.
    detail: float

    def __str__(self) -> str:
        return f"{self.kind} of {self.target} for {self.lasts:.3f} s ({self.detail:.3f})"


def plan_of(seed: int, profile: str, horizon: float) -> list[Fault]:
    """The faults of a seed, in order of time; they begin before the *horizon*."""
    draw = random.Random(f"{seed} faults")
    plan = []
    for kind, most in PROFILES[profile].items():
        for _ in range(draw.randint(0 if profile == "all" else 1, most)):
            at = draw.uniform(0.01, horizon)
            lasts = min(draw.choice((0.02, 0.2, 1.0, 4.0)) * draw.uniform(0.5, 1.5), horizon + _LAST - at)
            plan.append(Fault(at, kind, draw.randrange(1000), lasts, draw.random()))
    return sorted(plan, key=lambda fault: fault.at)
