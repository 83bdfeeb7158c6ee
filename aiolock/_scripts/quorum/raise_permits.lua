-- raise_permits: the same for permits; and who has any, so that all that a majority has granted can be counted.
--
-- KEYS[1] count
-- KEYS[2] permits
-- KEYS[3] tokens
-- ARGV[1] token
-- ARGV[2] acquisition id
-- ARGV[3] token retention, milliseconds
--
-- Reply {GRANTED, number of permits that there are, 0, permit, ...}  {LOST, 0, 0} when this server has not granted any, or
--       not any more
--
-- Twice: a token is only ever raised.

local now = milliseconds()
local expires = expiry(KEYS[2], ARGV[2])
if not expires or expires <= now then return {LOST, 0, 0} end
raise(KEYS[3], ARGV[1], ARGV[3])
local total = tonumber(redis.call('GET', KEYS[1]) or 0) + redis.call('ZCARD', KEYS[2])
local reply = {GRANTED, total, 0}
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. now, '+inf')) do reply[#reply + 1] = member end
return reply
