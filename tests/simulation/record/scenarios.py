"""All scenarios of the track record."""

from tests.simulation.record import others, redis_py, redisson, redlocks

SCENARIOS = (*redis_py.SCENARIOS, *redisson.SCENARIOS, *redlocks.SCENARIOS, *others.SCENARIOS)
