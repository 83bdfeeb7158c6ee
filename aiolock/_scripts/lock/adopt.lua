-- adopt: grant the lock of a detached hold to an owner; for plain and fair locks. In front of it, grant.lua, ends.lua,
-- late.lua, lock.lua and grant_again.lua define its functions.
--
-- KEYS[1] lock
-- KEYS[2] tokens
-- ARGV[1] owner
-- ARGV[2] acquisition id
-- ARGV[3] step
-- ARGV[4] hold count that the owner will have
-- ARGV[5] lease, milliseconds
-- ARGV[6] token retention, milliseconds
-- ARGV[7] memory of ended acquisitions, milliseconds
-- ARGV[8] id of the detached hold
-- ARGV[9] channel
-- ARGV[10] PUBLISH or SPUBLISH
--
-- Reply {GRANTED, token, ms left}  {LOST, why, 0}: why the detached hold has ended  {STALE, 0, 0}
--
-- The token is greater than that of the detached hold, which ends. If the lock will end sooner than before, waiters are
-- told to ask again.
--
-- Twice: the id finds its own grant and answers with the same token. An id that was released or given up is STALE, so a call
-- that arrives late grants nothing. No call grants anything once the detached hold has ended, and no other hold ever has
-- its id.

local acquisition, detached, memory = ARGV[2], ARGV[8], tonumber(ARGV[7])
local lease, retention = tonumber(ARGV[5]), ARGV[6]

local granted = again(KEYS[1], KEYS[2], ARGV[1], acquisition, 1, 1, lease, retention)
if granted then return granted end
local how = ending(KEYS[2], acquisition)
if how then return how == FREED and {STALE, 0, 0} or {LOST, how, 0} end
local token = if_held_by(detached, KEYS[1], 'aiolock:token', '0')
if not token then return end_as_lost(KEYS[1], KEYS[2], detached, memory, retention, '') end

local ttl, fair = redis.call('PTTL', KEYS[1]), redis.call('HGET', KEYS[1], 'aiolock:fair')
-- A server out of memory refuses what remember() writes, unless the script has written before.
redis.call('PEXPIRE', KEYS[2], retention)
remember(KEYS[2], TAKEN, detached, memory, retention, '')
local last = math.max(tonumber(token), tonumber(redis.call('ZSCORE', KEYS[2], 'token') or 0))
granted = fair and grant(microseconds(), nil, last, 'aiolock:fair', fair) or grant(microseconds(), nil, last)
redis.call('HDEL', KEYS[1], detached)
if lease < ttl then redis.call(ARGV[10], ARGV[9], '0') end
return granted
