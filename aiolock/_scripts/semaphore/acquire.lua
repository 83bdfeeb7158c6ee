-- acquire: take permits, all that are wanted or none.
--
-- KEYS[1] count
-- KEYS[2] tokens
-- ARGV[1] acquisition id
-- ARGV[2] memory of ended acquisitions, milliseconds
-- ARGV[3] token retention, milliseconds
-- ARGV[4] number of permits
-- ARGV[5] number of permits that there are, if nobody has said so yet; '' if that is not known
-- ARGV[6] channel
-- ARGV[7] PUBLISH or SPUBLISH
--
-- Reply {GRANTED, 0, 0, ms after which others may be granted}  {STALE, 0, 0}  {NOT_A_LOCK, 0, 0}
--       {REFUSED, 0, ms after which it may be granted}
--
-- Twice: that the acquisition took its permits is remembered, and the second call takes no more. One that was released or
-- given up is STALE: a call that arrives late takes nothing.

local acquisition, wanted = ARGV[1], tonumber(ARGV[4])
local is_counter, available = counter(KEYS[1])
if not is_counter then return {NOT_A_LOCK, 0, 0} end
local how = ending(KEYS[2], acquisition)
if how == TAKEN then return {GRANTED, 0, 0, (available or 0) > 0 and 0 or PROBE} end
if how then return {STALE, 0, 0} end

if not available and ARGV[5] ~= '' then
  available = tonumber(ARGV[5])
  set(KEYS[1], available, ARGV[6], ARGV[7])
end
if (available or 0) < wanted then return {REFUSED, 0, PROBE} end

redis.call('DECRBY', KEYS[1], wanted)
remember(KEYS[2], TAKEN, acquisition, tonumber(ARGV[2]), ARGV[3], '')
return {GRANTED, 0, 0, available > wanted and 0 or PROBE}
