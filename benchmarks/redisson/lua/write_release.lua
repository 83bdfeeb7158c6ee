-- KEYS lock, channel, latch  ARGV message, lease in ms, the owner's field as a writer, PUBLISH, how long the latch lives in ms
-- Reply 1 if it does not write any more, 0 if holds are left, nil if it did not write; the latch answers a second call
local known = redis.call('get', KEYS[3])
if known ~= false then return tonumber(known) end
if redis.call('hget', KEYS[1], 'mode') == false then
  redis.call(ARGV[4], KEYS[2], ARGV[1])
  redis.call('set', KEYS[3], 1, 'px', ARGV[5])
  return nil
end
if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then return nil end
if redis.call('hincrby', KEYS[1], ARGV[3], -1) > 0 then
  redis.call('pexpire', KEYS[1], ARGV[2])
  redis.call('set', KEYS[3], 0, 'px', ARGV[5])
  return 0
end
redis.call('hdel', KEYS[1], ARGV[3])
if redis.call('hlen', KEYS[1]) == 1 then
  redis.call('del', KEYS[1])
  redis.call(ARGV[4], KEYS[2], ARGV[1])
else
  redis.call('hset', KEYS[1], 'mode', 'read')
end
redis.call('set', KEYS[3], 1, 'px', ARGV[5])
return 1
