-- release: put the permits of an acquisition back, or give up one whose outcome is unknown.
--
-- KEYS[1] count
-- KEYS[2] tokens
-- ARGV[1] acquisition id
-- ARGV[2] 1 if it is known to have taken its permits, else 0
-- ARGV[3] token retention, milliseconds
-- ARGV[4] memory of ended acquisitions, milliseconds
-- ARGV[5] ids of ended acquisitions that may be forgotten, for no command of them can be late, with spaces between
-- ARGV[6] number of permits
-- ARGV[7] channel
-- ARGV[8] PUBLISH or SPUBLISH
--
-- Reply {GRANTED, receivers of the message, 0}
--
-- Twice: that the acquisition has ended is remembered, so the second call puts nothing back, and an acquire that arrives
-- after it takes nothing.

local acquisition = ARGV[1]
local how = ending(KEYS[2], acquisition)
if how == FREED then return {GRANTED, 0, 0} end
redis.call('PEXPIRE', KEYS[2], ARGV[3]) -- First: a server out of memory refuses a first write that takes memory.
remember(KEYS[2], FREED, acquisition, tonumber(ARGV[4]), ARGV[3], ARGV[5])
if how ~= TAKEN and ARGV[2] ~= '1' then return {GRANTED, 0, 0} end

-- Without the key, nobody has said how many there are: the next one who knows says so of all of them.
local _, available = counter(KEYS[1])
if not available then return {GRANTED, 0, 0} end
return {GRANTED, set(KEYS[1], available + ARGV[6], ARGV[7], ARGV[8]), 0}
