"""Faults for the checks of servers' data, of losses and of the number of commands."""

from tests.simulation.planted.fault import Fault

_READERS = "--on one --act reads"
_PERMITS = "--on one --act permit"
_COUNTED = "--on one --act counted"
_LATCH = "--on one --act latched"

FAMILY = (
    Fault(
        "the token of a read-write lock is the clock alone",
        "_scripts/token.lua",
        "math.max(tonumber(last or 0) + 1, time)",
        "time",
        f"{_READERS} --profile clock",
    ),
    Fault(
        "a reader with a short lease shortens the lock of all",
        "_scripts/read_write/acquire.lua",
        "if ttl < lease then redis.call('PEXPIRE', KEYS[1], lease) end",
        "redis.call('PEXPIRE', KEYS[1], lease)",
        f"{_READERS} --profile calm",
    ),
    Fault(
        "the token of a permit is the clock alone",
        "_scripts/permit/grant_if_free.lua",
        "next_token(KEYS[3], scores[2], ",
        "next_token(KEYS[3], nil, ",
        f"{_PERMITS} --profile clock",
    ),
    Fault(
        "permits that are released twice come back twice",
        "_scripts/permit/release.lua",
        "put_back(KEYS[1], taken)",
        "put_back(KEYS[1], ARGV[5])",
        f"{_PERMITS} --profile network",
    ),
    Fault(
        "permits are taken from a holder whose lease is about to end",
        "_scripts/permit/acquire.lua",
        "redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'LIMIT', 0, MOST_BACK + wanted)",
        "redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now + 150, 'LIMIT', 0, MOST_BACK + wanted)",
        f"{_PERMITS} --profile pauses",
    ),
    Fault(
        "a renewal of a permit is acknowledged without prolonging it",
        "_scripts/permit/renew.lua",
        "redis.call('ZADD', permits, 'XX', expires, permit(acquisition, i))",
        "redis.call('ZADD', permits, 'NX', expires, permit(acquisition, i))",
        f"{_PERMITS} --profile calm",
    ),
    Fault(
        "an acquire of a counting semaphore that is given up adds a permit",
        "_scripts/counting_semaphore/release.lua",
        "if how ~= TAKEN and ARGV[2] ~= '1' then return {APPLIED, 0, 0} end",
        "",
        f"{_COUNTED} --profile late",
    ),
    Fault(
        "a latch that is at zero is still there",
        "_scripts/latch/count_down.lua",
        "if left > 0 then\n",
        "if left >= 0 then\n",
        f"{_LATCH} --profile calm",
    ),
    Fault(
        "a wait for a latch ends one too early",
        "_scripts/latch/wait.lua",
        "if (count or 0) <= 0 then",
        "if (count or 0) <= 1 then",
        f"{_LATCH} --profile calm",
    ),
    Fault(
        "what a release left behind counts as free",
        "_scripts/lock/lock.lua",
        "if string.match(count, '^%d+$') then return 'held', ttl end",
        "if string.match(count, '^%d+$') then return 'free', 0 end",
        "--on one --act at_least --profile calm",
    ),
)

LOAD_AND_LOSSES = (
    Fault(
        "a waiter polls",
        "_core/queue.py",
        "at = self._loop.time() + min(seconds, _LONGEST_PROBE) + _SLACK",
        "at = self._loop.time() + min(seconds, 0.02)",
        "--on one --profile calm",
    ),
    Fault(
        "each message has every waiter ask",
        "_core/queue.py",
        "        elif not self._is_echo():\n            self._look_after_others()\n",
        "        else:\n            self.wake(len(self._places))\n",
        "--on one --profile calm --act crowd",
        missed="the bound on commands allows it",
    ),
    Fault(
        "a lease is told to be over when half of it is left",
        "_core/hold.py",
        "self.deadline = sent + left - margin(left, timing, len(self._keeper.entries))",
        "self.deadline = sent + left / 2",
        "--on one --profile calm --act renewed",
    ),
)
