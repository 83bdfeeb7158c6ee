-- KEYS count, channel  ARGV message, count, PUBLISH
-- Reply 1 if it was not set, else 0
if redis.call('exists', KEYS[1]) == 1 then return 0 end
redis.call('set', KEYS[1], ARGV[2])
redis.call(ARGV[3], KEYS[2], ARGV[1])
return 1
