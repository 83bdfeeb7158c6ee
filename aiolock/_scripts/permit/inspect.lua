-- inspect: how many permits there are, and who has them.
--
-- KEYS[1] count
-- KEYS[2] permits
-- ARGV[1] how many of those that are acquired to name at most
--
-- Reply {GRANTED, available, acquired, permit, ms left, permit, ms left, ...}  {REFUSED, 0, acquired, ...} when nobody
--       has said how many there are  {NOT_A_LOCK, 0, 0}
--
-- Twice: it only reads. A permit that has expired counts as available.

if is_foreign(KEYS[1], KEYS[2]) then return {NOT_A_LOCK, 0, 0} end
local now = milliseconds()
local count = redis.call('GET', KEYS[1])
local expired = redis.call('ZCOUNT', KEYS[2], '-inf', now)
local reply = {count and GRANTED or REFUSED, tonumber(count or 0) + expired, redis.call('ZCARD', KEYS[2]) - expired}
if not count then reply[2] = 0 end
local named = redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. now, '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[1])
for i = 1, #named, 2 do
  reply[#reply + 1] = named[i]
  reply[#reply + 1] = tonumber(named[i + 1]) - now
end
return reply
