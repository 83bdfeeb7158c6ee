-- resize: set the number of permits, or add to it. In front of it, ends.lua, late.lua and permit.lua define what it
-- calls.
--
-- KEYS[1] count
-- KEYS[2] permits
-- KEYS[3] tokens
-- ARGV[1] request id
-- ARGV[2] token retention, milliseconds
-- ARGV[3] memory of ended acquisitions, milliseconds
-- ARGV[4] ids of ended acquisitions to forget, as none of their commands can still arrive; separated by spaces
-- ARGV[5] number of permits; '' to add to it
-- ARGV[6] number to add
-- ARGV[7] number of permits to begin with if none is set
-- ARGV[8] channel
-- ARGV[9] PUBLISH or SPUBLISH
--
-- Reply {APPLIED, 0, 0}  {NOT_A_LOCK, 0, 0}
--
-- Twice: the request is remembered under its id; the second call changes nothing.

if ending(KEYS[3], ARGV[1]) then return {APPLIED, 0, 0} end
if is_foreign(KEYS[1], KEYS[2]) then return {NOT_A_LOCK, 0, 0} end

local acquired = redis.call('ZCARD', KEYS[2])
local available = available_of(KEYS[1]) or tonumber(ARGV[7]) - acquired
if ARGV[5] ~= '' then available = tonumber(ARGV[5]) - acquired else available = available + tonumber(ARGV[6]) end
redis.call('SET', KEYS[1], available, 'KEEPTTL')
remember(KEYS[3], FREED, ARGV[1], tonumber(ARGV[3]), ARGV[2], ARGV[4])
announce(KEYS[1], ARGV[8], ARGV[9])
return {APPLIED, 0, 0}
