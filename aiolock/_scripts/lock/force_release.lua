-- force_release: free the lock from any holder, or only a holder with a given token, and wake a waiter. In front of it,
-- ends.lua, late.lua and lock.lua define its functions.
--
-- KEYS[1] lock
-- KEYS[2] tokens
-- ARGV[1] request id
-- ARGV[2] token retention, milliseconds
-- ARGV[3] memory of ended acquisitions, milliseconds
-- ARGV[4] fencing token of the holder, or an empty string for any holder
-- ARGV[5] channel
-- ARGV[6] PUBLISH or SPUBLISH
--
-- Reply {APPLIED, 1 if it was freed else 0, 0}  {NOT_A_LOCK, 0, 0}
--
-- Twice: what this request did is remembered under its id, so the second call answers like the first and
-- leaves alone the holder of that time. The acquisition that lost the lock is remembered as forced.

local known = ending(KEYS[2], ARGV[1])
if known then return {APPLIED, known == FREED and 1 or 0, 0} end
local kind = state(KEYS[1])
if kind == 'foreign' then return {NOT_A_LOCK, 0, 0} end

local freed, memory = kind == 'held', tonumber(ARGV[3])
if freed and ARGV[4] ~= '' then freed = redis.call('HGET', KEYS[1], 'aiolock:token') == ARGV[4] end
redis.call('PEXPIRE', KEYS[2], ARGV[2])
remember(KEYS[2], freed and FREED or EXPIRED, ARGV[1], memory, ARGV[2], '')
if not freed then return {APPLIED, 0, 0} end
local acquisition = redis.call('HGET', KEYS[1], 'aiolock:acquisition')
if acquisition then remember(KEYS[2], FORCED, acquisition, memory, ARGV[2], '') end
redis.call('DEL', KEYS[1])
redis.call(ARGV[6], ARGV[5], '0')
return {APPLIED, 1, 0}
