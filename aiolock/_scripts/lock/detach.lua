-- detach: give the lock of its holder to a detached hold, for a given time; for plain and fair locks. A detached hold
-- can be adopted only with a secret, of which its id has a digest. In front of it, ends.lua, late.lua, lives.lua,
-- lock.lua and replace.lua define its functions.
--
-- KEYS[1] lock
-- KEYS[2] tokens
-- ARGV[1] acquisition id of the holder
-- ARGV[2] id of the detached hold, which is also its owner
-- ARGV[3] time for which the detached hold lasts, milliseconds
-- ARGV[4] token retention, milliseconds
-- ARGV[5] memory of ended acquisitions, milliseconds
-- ARGV[6] ids of ended acquisitions to forget, as none of their commands can still arrive; separated by spaces
-- ARGV[7] channel
-- ARGV[8] PUBLISH or SPUBLISH
--
-- Reply {GRANTED, token, ms left}  {LOST, why, 0}  {STALE, 0, 0}
--
-- The token stays that of the holder. If the lock will end sooner than before, waiters are told to ask again.
--
-- Twice: the second call finds the detached hold, or the remembered end of the detached hold or of the acquisition, and
-- changes nothing. If the detached hold was given up before the call arrives, the reply is STALE, and the hold never begins.

local acquisition, detached, keep = ARGV[1], ARGV[2], tonumber(ARGV[3])
local retention, memory = ARGV[4], tonumber(ARGV[5])

local token = if_held_by(detached, KEYS[1], 'aiolock:token', '0')
if token then
  write_again(KEYS[1])
  return {GRANTED, tonumber(token), redis.call('PTTL', KEYS[1])}
end
local how = ending(KEYS[2], detached)
if how then return how == FREED and {STALE, 0, 0} or {LOST, how, 0} end
token = if_held_by(acquisition, KEYS[1], 'aiolock:token', '0')
if not token then return end_as_lost(KEYS[1], KEYS[2], acquisition, memory, retention, ARGV[6]) end

local ttl, fair = redis.call('PTTL', KEYS[1]), redis.call('HGET', KEYS[1], 'aiolock:fair')
replace_fields(KEYS[1], keep, detached, '1', 'aiolock:acquisition', detached, 'aiolock:token', token)
if fair then redis.call('HSET', KEYS[1], 'aiolock:fair', fair) end
remember(KEYS[2], FREED, acquisition, memory, retention, ARGV[6])
if keep < ttl then redis.call(ARGV[8], ARGV[7], '0') end
return {GRANTED, tonumber(token), keep}
