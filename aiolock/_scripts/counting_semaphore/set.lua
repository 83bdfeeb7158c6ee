-- set: set the number of permits, unless it is set already. In front of it, ends.lua, number.lua and
-- counting_semaphore.lua define its functions.
--
-- KEYS[1] count
-- KEYS[2] tokens
-- ARGV[1] request id
-- ARGV[2] token retention, milliseconds
-- ARGV[3] memory of ended acquisitions, milliseconds
-- ARGV[4] ids of ended acquisitions to forget, as none of their commands can still arrive; separated by spaces
-- ARGV[5] number of permits
-- ARGV[6] channel
-- ARGV[7] PUBLISH or SPUBLISH
--
-- Reply {APPLIED, receivers of the message, 0}  {REFUSED, 0, 0}  {NOT_A_LOCK, 0, 0}
--
-- Twice: the request is remembered under its id, refused or not; the second call changes nothing, and gets the same
-- reply.

local is_counter, available = counter(KEYS[1])
if not is_counter then return {NOT_A_LOCK, 0, 0} end
local ended = redis.call('ZSCORE', KEYS[2], ARGV[1])
-- This request was made, or refused, before.
if ended then return {ended % 10 == FREED and APPLIED or REFUSED, 0, 0} end

-- A server out of memory remembers a refusal, too, whose first write must not need memory.
if available then redis.call('PEXPIRE', KEYS[2], ARGV[2]) end
remember(KEYS[2], available and EXPIRED or FREED, ARGV[1], ARGV[3], ARGV[2], ARGV[4])
if available then return {REFUSED, 0, 0} end
return {APPLIED, set(KEYS[1], ARGV[5], ARGV[6], ARGV[7]), 0}
