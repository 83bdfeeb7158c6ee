"""Faults of the Lua scripts."""

from tests.simulation.planted.fault import Fault

_LATE = "--on one --profile late"
_CALM = "--on one --profile calm"
_SLOTS = "--on cluster --profile slots"
_READERS = "--on one --act reads"
_PERMITS = "--on one --act permit"
_COUNTED = "--on one --act counted"
_FAIR = "--on one --act fair"

_LOCK = (
    Fault(
        "a late acquire is granted after its give-up",
        "_scripts/lock/acquire.lua",
        "if scores[1] then return {STALE, 0, 0} end",
        "",
        _LATE,
    ),
    Fault(
        "a release frees whatever acquisition has the lock",
        "_scripts/lock/free_and_mark.lua",
        "redis.pcall('HGET', KEYS[1], 'aiolock:acquisition') == ARGV[1]",
        "redis.call('HEXISTS', KEYS[1], 'aiolock:acquisition') == 1",
        _LATE,
    ),
    Fault(
        "a late release of an inner hold counts, though later steps came before it",
        "_scripts/lock/lower_count.lua",
        "if last and tonumber(ARGV[3]) > tonumber(last) then",
        "if last then",
        f"{_LATE} --act nested",
    ),
    Fault(
        "the end of an acquisition is not remembered",
        "_scripts/lock/release_last.lua",
        "  remember(KEYS[2], FREED, ARGV[2], ARGV[6], ARGV[5], ARGV[7])\n",
        "",
        _LATE,
    ),
    Fault(
        "a clean release leaves no mark",
        "_scripts/lock/free_and_mark.lua",
        "redis.call('ZADD', KEYS[2], 'XX', 'CH', ARGV[2], ARGV[3]) == 1 and ARGV[2] % SELDOM_NOTED ~= 0",
        "true",
        _LATE,
        "a lost answer explains it; the model finds it",
    ),
    Fault(
        "a release is clean though an acquire can be late",
        "_core/commands.py",
        "hold.open_changes > 1 or ",
        "",
        _LATE,
    ),
    Fault(
        "any mark says that a lock was freed",
        "_scripts/lock/release_clean.lua",
        "tonumber(last) == tonumber(ARGV[2])",
        "true",
        "--on one --profile data",
    ),
    Fault(
        "a release publishes nothing",
        "_scripts/lock/tell_waiters.lua",
        "redis.call(ARGV[7], ARGV[6], '0')",
        "1",
        _CALM,
    ),
    Fault(
        "a renewal prolongs the lock of any holder",
        "_scripts/lock/renew.lua",
        "local last = if_held_by(acquisition, key, 'aiolock:renewal', '0')",
        "local last = redis.call('PTTL', key) > 0 and (redis.call('HGET', key, 'aiolock:renewal') or '0')",
        "--on one --profile data",
    ),
    Fault(
        "a renewal is acknowledged without prolonging anything",
        "_scripts/lock/renew.lua",
        "    lengthen(key, tonumber(lease))\n",
        "",
        _CALM,
    ),
    Fault(
        "the token is the clock alone",
        "_scripts/lock/grant.lua",
        "math.max(last + 1, time)",
        "time",
        "--on one --profile clock",
    ),
    Fault(
        "an acquire of an inner hold counts, though later steps came before it",
        "_scripts/lock/grant_again.lua",
        "if step > tonumber(last) then",
        "if true then",
        f"{_LATE} --act nested",
    ),
    Fault(
        "a granted lock has no time to live",
        "_scripts/lock/grant.lua",
        "  redis.call('PEXPIRE', KEYS[1], ARGV[5])\n",
        "",
        _CALM,
    ),
    Fault(
        "the record of tokens has no time to live",
        "_scripts/lock/grant.lua",
        "redis.call('PEXPIRE', KEYS[2], ARGV[6])",
        "last = 0",
        _CALM,
    ),
    Fault(
        "a nested acquire of a short lease shortens the lock",
        "_scripts/lives.lua",
        "if redis.call('PTTL', key) < lease then",
        "if true then",
        f"{_CALM} --act nested",
    ),
    Fault(
        "a lock that is freed by force tells nobody",
        "_scripts/lock/force_release.lua",
        "redis.call(ARGV[6], ARGV[5], '0')\n",
        "",
        f"{_CALM} --act forced",
    ),
    Fault(
        "ends are forgotten at once",
        "_scripts/ends.lua",
        "(math.floor(time[1] * 1000 + time[2] / 1000) - memory) * 10",
        "math.floor(time[1] * 1000 + time[2] / 1000) * 10",
        _LATE,
    ),
    Fault(
        "an acquisition that is given up before it arrives is not remembered",
        "_scripts/late.lua",
        "    remember(tokens, why, acquisition, memory, retention, others)\n",
        "",
        _LATE,
    ),
    Fault(
        "a release that leaves something behind leaves nothing",
        "_scripts/lock/release_later.lua",
        "  replace_fields(KEYS[1], ARGV[5], ARGV[6], ARGV[7])\n",
        "  redis.call('DEL', KEYS[1])\n",
        f"{_CALM} --act once",
    ),
    Fault(
        "what a release leaves behind stays for ever",
        "_scripts/lock/release_later.lua",
        "  replace_fields(KEYS[1], ARGV[5], ARGV[6], ARGV[7])\n",
        "  replace_fields(KEYS[1], ARGV[5], ARGV[6], ARGV[7])\n  redis.call('PERSIST', KEYS[1])\n",
        f"{_CALM} --act at_least",
    ),
    Fault(
        "a lock is deleted before something else is written in its place",
        "_scripts/lock/replace.lua",
        "  redis.call('PEXPIRE', key, lease)\n  redis.call('HSET', key, ...)\n",
        "  redis.call('DEL', key)\n  redis.call('HSET', key, ...)\n",
        f"{_SLOTS} --act adopts",
    ),
    Fault(
        "an old result is not replaced by that of the next run",
        "_scripts/lock/release_later.lua",
        "  if KEYS[3] then\n",
        "  if KEYS[3] and redis.call('EXISTS', KEYS[3]) == 0 then\n",
        f"{_CALM} --act refreshes",
    ),
    Fault(
        "a question for an old result prolongs it",
        "_scripts/once/old.lua",
        "return redis.call('HMGET', KEYS[1], 'aiolock:outcome')",
        "redis.call('PEXPIRE', KEYS[1], 60000)\nreturn redis.call('HMGET', KEYS[1], 'aiolock:outcome')",
        f"{_CALM} --act refreshes",
    ),
    Fault(
        "an outcome that is there is not told",
        "_scripts/once/outcome.lua",
        "if type(outcome) == 'string' then return {DONE, 0, redis.call('PTTL', KEYS[1]), outcome} end",
        "",
        f"{_CALM} --act once",
    ),
)

_FAMILY = (
    Fault(
        "a dead client stands first in line for ever",
        "_scripts/fair/fair.lua",
        "local SILENCE = 700",
        "local SILENCE = 700000",
        f"{_FAIR} --profile deaths",
    ),
    Fault(
        "any client is granted a free fair lock, first in line or not",
        "_scripts/fair/acquire.lua",
        "elseif first == nil or first == acquisition then",
        "elseif true then",
        f"{_FAIR} --profile calm",
    ),
    Fault(
        "a free fair lock is granted at once to one who is not the first in line",
        "_scripts/fair/grant_if_free.lua",
        "and (not line[1] or line[1] == ticket) then",
        "then",
        f"{_FAIR} --profile calm",
    ),
    Fault(
        "a ticket stays in line after its grant",
        "_scripts/fair/grant_if_free.lua",
        "      redis.call('ZREM', KEYS[2], ticket)\n",
        "",
        f"{_FAIR} --profile calm",
    ),
    Fault(
        "a waiter that gives up stays in line",
        "_scripts/fair/release.lua",
        "if leave_line(KEYS[2], acquisition) and state(KEYS[1]) == 'free' then wake(ARGV[8], ARGV[9], acquisition) end",
        "",
        f"{_FAIR} --profile calm",
    ),
    Fault(
        "a fair release tells the first in line nothing",
        "_scripts/fair/wake.lua",
        "local receivers = redis.call(publish, channel .. ':' .. client, '0')",
        "local receivers = 0",
        f"{_FAIR} --profile calm",
    ),
    Fault(
        "a writer is granted the lock beside readers",
        "_scripts/read_write/acquire.lua",
        "if mode ~= 'free' and not inside and (kind == 'write' or mode == 'write') then",
        "if mode ~= 'free' and not inside and mode == 'write' then",
        f"{_READERS} --profile calm",
    ),
    Fault(
        "a late acquire of a reader is granted after its give-up",
        "_scripts/read_write/acquire.lua",
        "if scores[1] then return {STALE, 0, 0} end",
        "",
        f"{_READERS} --profile late",
    ),
    Fault(
        "the last reader that leaves tells nobody",
        "_scripts/read_write/release.lua",
        "(writing or not others) and announce() or 0",
        "writing and announce() or 0",
        f"{_READERS} --profile calm",
        missed="the next writer asks once a second",
    ),
    Fault(
        "a renewal of a reader prolongs its record, but not the lock",
        "_scripts/read_write/renew.lua",
        "    lengthen(lock, tonumber(lease))\n",
        "",
        f"{_READERS} --profile calm",
    ),
    Fault(
        "a writer that leaves and reads on keeps the lock in the mode of a writer",
        "_scripts/read_write/read_write.lua",
        "  if writes(field) then redis.call('HSET', lock, 'mode', 'read') end\n",
        "",
        f"{_READERS} --profile calm",
    ),
    Fault(
        "one reader that leaves takes the lock from all",
        "_scripts/read_write/read_write.lua",
        "if redis.call('HLEN', lock) == 2 then",
        "if redis.call('HLEN', lock) >= 2 then",
        f"{_READERS} --profile calm",
    ),
    Fault(
        "a permit that is released does not come back",
        "_scripts/permit/release.lua",
        "put_back(KEYS[1], taken)\n",
        "",
        f"{_PERMITS} --profile calm",
    ),
    Fault(
        "one permit more is granted than there are",
        "_scripts/permit/acquire.lua",
        "if available - kept < wanted and not overtakes then",
        "if available - kept < wanted - 1 and not overtakes then",
        f"{_PERMITS} --profile calm",
    ),
    Fault(
        "a late acquire of a permit is granted after its give-up",
        "_scripts/permit/acquire.lua",
        "if ending(KEYS[3], acquisition) then return {STALE, 0, 0} end",
        "",
        f"{_PERMITS} --profile late",
    ),
    Fault(
        "permits of the dead do not come back",
        "_scripts/permit/acquire.lua",
        "  available = redis.call('INCRBY', KEYS[1], #expired)\n",
        "",
        f"{_PERMITS} --profile deaths",
    ),
    Fault(
        "a renewal of a permit prolongs nothing",
        "_scripts/permit/renew.lua",
        "  expires = math.max(expires, now + lease)\n",
        "",
        f"{_PERMITS} --profile calm",
    ),
    Fault(
        "an acquire of a counting semaphore that is sent twice counts twice",
        "_scripts/counting_semaphore/acquire.lua",
        "if ended and ended % 10 == TAKEN then\n"
        "  -- WAIT asks the replicas only about writes of its own connection: this one covers the grant.\n"
        "  redis.call('PEXPIRE', KEYS[2], ARGV[3])\n"
        "  return granted(available or 0)\n"
        "end\n"
        "if ended then",
        "if ended and ended % 10 ~= TAKEN then",
        f"{_COUNTED} --profile network",
    ),
    Fault(
        "one permit of a counting semaphore more is granted than there are",
        "_scripts/counting_semaphore/acquire.lua",
        "if (available or 0) < wanted then",
        "if (available or 0) < wanted - 1 then",
        f"{_COUNTED} --profile calm",
    ),
    Fault(
        "a release of a counting semaphore that is sent twice counts twice",
        "_scripts/counting_semaphore/release.lua",
        "if how == FREED then return {APPLIED, 0, 0} end",
        "",
        f"{_COUNTED} --profile network",
    ),
    Fault(
        "a latch that is counted down by a call that is sent twice counts twice",
        "_scripts/latch/count_down.lua",
        "if ended then return {ended == FREED and APPLIED or REFUSED, 0, 0} end\n",
        "",
        "--on one --profile network --act latched",
    ),
    Fault(
        "a change of a latch that was refused is not remembered",
        "_scripts/latch/set.lua",
        "end_of_copy(KEYS[2], count and EXPIRED or FREED, ",
        "not count and end_of_copy(KEYS[2], FREED, ",
        "--on one --profile late --act latched",
    ),
    Fault(
        "a latch that opens tells nobody",
        "_scripts/latch/count_down.lua",
        "  redis.call(ARGV[7], ARGV[6], OPEN)\n",
        "",
        f"{_CALM} --act latched",
    ),
)

_QUORUM = (
    Fault(
        "a server of a quorum that has forgotten its locks votes at once",
        "_scripts/quorum/remember.lua",
        "if left > 0 then return {ABSTAINS, 0, left} end",
        "",
        "--profile quorum_data",
    ),
    Fault(
        "a server of a quorum does not notice that it was started again",
        "_scripts/quorum/remember.lua",
        "local has_forgotten = remembered ~= life or tonumber(since) > now",
        "local has_forgotten = not remembered",
        "--profile quorum_data",
        missed="it has lost its mark, too",
    ),
    Fault(
        "the token that a quorum agreed on is not kept where it was raised",
        "_scripts/quorum/raise.lua",
        "if last < tonumber(ARGV[1]) then redis.call('ZADD', KEYS[2], ARGV[1], 'token') end\n",
        "",
        "--on quorum --profile clock",
    ),
)

SCRIPTS = (*_LOCK, *_FAMILY, *_QUORUM)
