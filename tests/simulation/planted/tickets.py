"""Faults of the tickets that hand a hold from one process to another."""

from tests.simulation.planted.fault import Fault

_ACT = "--on one --act adopts"

TICKETS = (
    Fault(
        "an adoption asks not whose the lock is",
        "_scripts/lock/adopt.lua",
        "local token = if_held_by(detached, KEYS[1], 'aiolock:token', '0')",
        "local token = redis.call('HGET', KEYS[1], 'aiolock:token')",
        _ACT,
    ),
    Fault(
        "an adoption of permits leaves those of the detached hold",
        "_scripts/permit/move.lua",
        "      redis.call('ZREM', permits, permit(from, i))\n",
        "",
        _ACT,
    ),
    Fault(
        "an adopted lock keeps the token of its ticket",
        "_scripts/read_write/adopt.lua",
        "local granted, told = next_token(KEYS[2], last, microseconds())",
        "local granted, told = tonumber(token), token",
        _ACT,
    ),
    Fault(
        "a detached lock keeps the lease of its holder",
        "_scripts/lock/detach.lua",
        "replace_fields(KEYS[1], keep, detached,",
        "replace_fields(KEYS[1], ttl, detached,",
        _ACT,
    ),
    Fault(
        "a detached lock gets a new token",
        "_scripts/lock/detach.lua",
        "'aiolock:acquisition', detached, 'aiolock:token', token)",
        "'aiolock:acquisition', detached, 'aiolock:token', string.format('%.0f', token + 1))",
        _ACT,
    ),
    Fault(
        "a detached reader or writer gets a new token",
        "_scripts/read_write/detach.lua",
        "'acquisition', detached, 'token', token, ",
        "'acquisition', detached, 'token', string.format('%.0f', token + 1), ",
        _ACT,
    ),
    Fault(
        "the watchdog goes on with what was detached",
        "_core/detach.py",
        "    hold._end(GIVEN_BACK)\n",
        "",
        _ACT,
    ),
    Fault(
        "a cancelled adoption is not given up",
        "_core/adopt.py",
        "        self._may_have_grant = True\n",
        "",
        _ACT,
    ),
)
