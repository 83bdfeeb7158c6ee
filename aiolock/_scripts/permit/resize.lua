-- resize: say how many permits there are, or how many more.
--
-- KEYS[1] count
-- KEYS[2] permits
-- KEYS[3] tokens
-- ARGV[1] request id
-- ARGV[2] token retention, milliseconds
-- ARGV[3] memory of ended acquisitions, milliseconds
-- ARGV[4] ids of ended acquisitions that may be forgotten, for no command of them can be late, with spaces between
-- ARGV[5] how many permits there are; '' to say how many more
-- ARGV[6] how many more
-- ARGV[7] how many there are if nobody has said so yet
-- ARGV[8] channel
-- ARGV[9] PUBLISH or SPUBLISH
--
-- Reply {GRANTED, 0, 0}  {NOT_A_LOCK, 0, 0}
--
-- Twice: what this request did is remembered under its id; the second call changes nothing.

if ending(KEYS[3], ARGV[1]) then return {GRANTED, 0, 0} end
if is_foreign(KEYS[1], KEYS[2]) then return {NOT_A_LOCK, 0, 0} end

local acquired = redis.call('ZCARD', KEYS[2])
local available = tonumber(redis.call('GET', KEYS[1])) or tonumber(ARGV[7]) - acquired
if ARGV[5] ~= '' then available = tonumber(ARGV[5]) - acquired else available = available + tonumber(ARGV[6]) end
redis.call('SET', KEYS[1], available, 'KEEPTTL')
remember(KEYS[3], FREED, ARGV[1], tonumber(ARGV[3]), ARGV[2], ARGV[4])
announce(KEYS[1], ARGV[8], ARGV[9])
return {GRANTED, 0, 0}
