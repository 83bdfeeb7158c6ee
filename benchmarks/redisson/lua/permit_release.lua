-- KEYS count, channel, permits  ARGV id, 1, now in ms, PUBLISH
-- Reply 1 if it had not expired, else 0
local expires = redis.call('zscore', KEYS[3], ARGV[1])
if redis.call('zrem', KEYS[3], ARGV[1]) == 0 then return 0 end
local count = redis.call('incrby', KEYS[1], ARGV[2])
redis.call(ARGV[4], KEYS[2], count)
return tonumber(expires) <= tonumber(ARGV[3]) and 0 or 1
