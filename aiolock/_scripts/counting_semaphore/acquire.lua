-- acquire: take permits, all that are wanted or none. In front of it, ends.lua, number.lua and counting_semaphore.lua
-- define its functions.
--
-- KEYS[1] count
-- KEYS[2] tokens
-- ARGV[1] acquisition id
-- ARGV[2] memory of ended acquisitions, milliseconds
-- ARGV[3] token retention, milliseconds
-- ARGV[4] number of permits
-- ARGV[5] number of permits to set if none is set yet; '' if it is not known
-- ARGV[6] channel
-- ARGV[7] PUBLISH or SPUBLISH
--
-- Reply {GRANTED, 0, 0, ms after which others may be granted, permits that are left}  {STALE, 0, 0}
--       {NOT_A_LOCK, 0, 0}  {REFUSED, 0, ms after which it may be granted}
--
-- Twice: the acquisition is remembered when it takes its permits, and the second call takes no more. An acquisition
-- that was released or given up is STALE: a call that arrives late takes nothing.

local acquisition, wanted = ARGV[1], tonumber(ARGV[4])

local function granted(left)
  return {GRANTED, 0, 0, left > 0 and 0 or PROBE, math.max(0, left)}
end

local is_counter, available = counter(KEYS[1])
if not is_counter then return {NOT_A_LOCK, 0, 0} end
local ended = redis.call('ZSCORE', KEYS[2], acquisition)
if ended and ended % 10 == TAKEN then
  -- WAIT asks the replicas only about writes of its own connection: this one covers the grant.
  redis.call('PEXPIRE', KEYS[2], ARGV[3])
  return granted(available or 0)
end
if ended then return {STALE, 0, 0} end

if not available and ARGV[5] ~= '' then
  available = tonumber(ARGV[5])
  set(KEYS[1], available, ARGV[6], ARGV[7])
end
if (available or 0) < wanted then return {REFUSED, 0, PROBE} end

redis.call('DECRBY', KEYS[1], wanted)
remember(KEYS[2], TAKEN, acquisition, ARGV[2], ARGV[3])
return granted(available - wanted)
