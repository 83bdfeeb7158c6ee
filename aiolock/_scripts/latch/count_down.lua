-- count_down: lower the count, or set it to zero; at zero all waiters are released. In front of it, number.lua and
-- latch.lua define its functions.
--
-- KEYS[1] count
-- KEYS[2] tokens
-- ARGV[1] request id
-- ARGV[2] token retention, milliseconds
-- ARGV[3] memory of ended acquisitions, milliseconds
-- ARGV[4] ids of ended acquisitions to forget, as none of their commands can still arrive; separated by spaces
-- ARGV[5] number to subtract; '' for zero
-- ARGV[6] channel
-- ARGV[7] PUBLISH or SPUBLISH
--
-- Reply {APPLIED, 0, 0}  {REFUSED, 0, 0} if it was zero  {NOT_A_LOCK, 0, 0}
--
-- Twice: the request is remembered under its id, refused or not; the second call counts nothing, and gets the same
-- reply. At zero nothing is kept for longer than that memory.

local is_counter, count = counter(KEYS[1])
if not is_counter then return {NOT_A_LOCK, 0, 0} end
-- Also 0 if there is no count: then this is a refusal.
local left = ARGV[5] ~= '' and count and count - ARGV[5] or 0
local retention = left > 0 and ARGV[2] or ARGV[3]
-- A server out of memory refuses a first write that needs memory; if there are ends to forget, forgetting comes first.
if ARGV[4] == '' then redis.call('PEXPIRE', KEYS[2], retention) end
local ended = end_of_copy(KEYS[2], count and FREED or EXPIRED, ARGV[1], ARGV[3], retention, ARGV[4])
if ended then return {ended == FREED and APPLIED or REFUSED, 0, 0} end
if not count then return {REFUSED, 0, 0} end
if left > 0 then
  redis.call('DECRBY', KEYS[1], ARGV[5])
else
  redis.call('DEL', KEYS[1])
  redis.call(ARGV[7], ARGV[6], OPEN)
end
return {APPLIED, 0, 0}
