-- KEYS count, channel  ARGV message, PUBLISH
-- Reply the count
local count = redis.call('decr', KEYS[1])
if count <= 0 then redis.call('del', KEYS[1]) end
if count == 0 then redis.call(ARGV[2], KEYS[2], ARGV[1]) end
return count
