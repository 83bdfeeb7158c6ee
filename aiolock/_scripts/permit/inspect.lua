-- inspect: the number of permits, and their holders. In front of it, late.lua and permit.lua define its functions.
--
-- KEYS[1] count
-- KEYS[2] permits
-- ARGV[1] limit for the number of permits that are listed
-- ARGV[2] the beginning of the permits that are listed, without a limit; '' for any
--
-- Reply {GRANTED, available, acquired, permit, ms left, permit, ms left, ...}  {NOT_A_LOCK, 0, 0}
--       {REFUSED, 0, acquired, ...} if no number of permits is set
--
-- Twice: it only reads. A permit that has expired counts as available.

if is_foreign(KEYS[1], KEYS[2]) then return {NOT_A_LOCK, 0, 0} end
local now = milliseconds()
local count = redis.call('GET', KEYS[1])
local expired = redis.call('ZCOUNT', KEYS[2], '-inf', now)
local available = count and count + expired or 0
local reply = {count and GRANTED or REFUSED, available, redis.call('ZCARD', KEYS[2]) - expired}
local named = redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. now, '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[2] == '' and ARGV[1] or -1)
for i = 1, #named, 2 do
  if named[i]:sub(1, #ARGV[2]) == ARGV[2] then
    reply[#reply + 1] = named[i]
    reply[#reply + 1] = tonumber(named[i + 1]) - now
  end
end
return reply
