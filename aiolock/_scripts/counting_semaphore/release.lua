-- release: put the permits of an acquisition back, or give up an acquisition whose outcome is unknown. In front of it,
-- ends.lua, number.lua and counting_semaphore.lua define its functions.
--
-- KEYS[1] count
-- KEYS[2] tokens
-- ARGV[1] acquisition id
-- ARGV[2] 1 if it is known to have taken its permits, else 0
-- ARGV[3] token retention, milliseconds
-- ARGV[4] memory of ended acquisitions, milliseconds
-- ARGV[5] ids of ended acquisitions to forget, as none of their commands can still arrive; separated by spaces
-- ARGV[6] number of permits
-- ARGV[7] channel
-- ARGV[8] PUBLISH or SPUBLISH
--
-- Reply {APPLIED, receivers of the message, 0}
--
-- Twice: the end of the acquisition is remembered, so the second call puts nothing back, and an acquire that arrives
-- after it takes nothing.

local acquisition = ARGV[1]
local ended = redis.call('ZSCORE', KEYS[2], acquisition)
local how = ended and ended % 10
if how == FREED then return {APPLIED, 0, 0} end
-- A server out of memory refuses a first write that needs memory; if there are ends to forget, forgetting comes first.
if ARGV[5] == '' then redis.call('PEXPIRE', KEYS[2], ARGV[3]) end
remember(KEYS[2], FREED, acquisition, ARGV[4], ARGV[3], ARGV[5])
if how ~= TAKEN and ARGV[2] ~= '1' then return {APPLIED, 0, 0} end

-- Without the key no number of permits is set: the next client that knows the number sets it.
local _, available = counter(KEYS[1])
if not available then return {APPLIED, 0, 0} end
return {APPLIED, set(KEYS[1], available + ARGV[6], ARGV[7], ARGV[8]), 0}
