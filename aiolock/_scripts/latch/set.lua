-- set: set the count, unless there is one already. In front of it, number.lua and latch.lua define its functions.
--
-- KEYS[1] count
-- KEYS[2] tokens
-- ARGV[1] request id
-- ARGV[2] token retention, milliseconds
-- ARGV[3] memory of ended acquisitions, milliseconds
-- ARGV[4] ids of ended acquisitions to forget, as none of their commands can still arrive; separated by spaces
-- ARGV[5] count
-- ARGV[6] channel
-- ARGV[7] PUBLISH or SPUBLISH
--
-- Reply {APPLIED, 0, 0}  {REFUSED, 0, 0}  {NOT_A_LOCK, 0, 0}
--
-- Twice: the request is remembered under its id, refused or not; the second call changes nothing, and gets the same
-- reply.

local is_counter, count = counter(KEYS[1])
if not is_counter then return {NOT_A_LOCK, 0, 0} end
-- A server out of memory remembers a refusal, too, whose first write must not need memory.
if count then redis.call('PEXPIRE', KEYS[2], ARGV[2]) end
local ended = end_of_copy(KEYS[2], count and EXPIRED or FREED, ARGV[1], ARGV[3], ARGV[2], ARGV[4])
if ended then return {ended == FREED and APPLIED or REFUSED, 0, 0} end
if count then return {REFUSED, 0, 0} end
redis.call('SET', KEYS[1], ARGV[5])
redis.call(ARGV[7], ARGV[6], CLOSED)
return {APPLIED, 0, 0}
