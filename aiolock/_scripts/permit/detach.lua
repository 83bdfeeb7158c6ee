-- detach: give the permits of their holder to a detached hold, for a given time. A detached hold can be adopted only
-- with a secret, of which its id has a digest. In front of it, ends.lua, late.lua, permit.lua and move.lua define what
-- it calls.
--
-- KEYS[1] count
-- KEYS[2] permits
-- KEYS[3] tokens
-- ARGV[1] acquisition id of the holder
-- ARGV[2] id of the detached hold
-- ARGV[3] time for which the detached hold lasts, milliseconds
-- ARGV[4] token retention, milliseconds
-- ARGV[5] memory of ended acquisitions, milliseconds
-- ARGV[6] ids of ended acquisitions to forget, as none of their commands can still arrive; separated by spaces
-- ARGV[7] number of permits
-- ARGV[8] channel
-- ARGV[9] PUBLISH or SPUBLISH
--
-- Reply {GRANTED, 0, ms left}  {LOST, why, 0}  {STALE, 0, 0}
--
-- If the permits will be available sooner than before, waiters are told to ask again.
--
-- Twice: the second call finds the detached hold, or the remembered end of the detached hold or of the acquisition, and
-- changes nothing. If the detached hold was given up before the call arrives, the reply is STALE, and the hold never begins.

local acquisition, detached, keep = ARGV[1], ARGV[2], tonumber(ARGV[3])
local memory, retention = tonumber(ARGV[5]), ARGV[4]
local now = milliseconds()

local expires = expiry(KEYS[2], detached)
if expires and expires > now then
  redis.call('PEXPIRE', KEYS[3], retention)
  return {GRANTED, 0, expires - now}
end
local how = ending(KEYS[3], detached)
if how then return how == FREED and {STALE, 0, 0} or {LOST, how, 0} end
expires = expiry(KEYS[2], acquisition)
if not expires or expires <= now then return end_as_lost(KEYS[3], acquisition, memory, retention, ARGV[6]) end

redis.call('PEXPIRE', KEYS[3], retention)
move(KEYS[2], acquisition, detached, tonumber(ARGV[7]), now + keep)
remember(KEYS[3], FREED, acquisition, memory, retention, ARGV[6])
if now + keep < expires then tell_to_ask(KEYS[1], tonumber(ARGV[7]), ARGV[8], ARGV[9]) end
return {GRANTED, 0, keep}
