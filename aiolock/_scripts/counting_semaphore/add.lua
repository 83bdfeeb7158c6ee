-- add: change the number of available permits. In front of it, ends.lua, number.lua and counting_semaphore.lua define
-- its functions.
--
-- KEYS[1] count
-- KEYS[2] tokens
-- ARGV[1] request id
-- ARGV[2] token retention, milliseconds
-- ARGV[3] memory of ended acquisitions, milliseconds
-- ARGV[4] ids of ended acquisitions to forget, as none of their commands can still arrive; separated by spaces
-- ARGV[5] number to add
-- ARGV[6] number of permits to begin with if none is set
-- ARGV[7] channel
-- ARGV[8] PUBLISH or SPUBLISH
--
-- Reply {APPLIED, receivers of the message, 0}  {NOT_A_LOCK, 0, 0}
--
-- Twice: the request is remembered under its id; the second call changes nothing.

local is_counter, available = counter(KEYS[1])
if not is_counter then return {NOT_A_LOCK, 0, 0} end
if redis.call('ZSCORE', KEYS[2], ARGV[1]) then return {APPLIED, 0, 0} end
remember(KEYS[2], FREED, ARGV[1], ARGV[3], ARGV[2], ARGV[4])
return {APPLIED, set(KEYS[1], (available or tonumber(ARGV[6])) + ARGV[5], ARGV[7], ARGV[8]), 0}
