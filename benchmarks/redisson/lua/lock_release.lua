-- KEYS lock, channel, latch  ARGV message, lease in ms, owner, PUBLISH, how long the latch lives in ms
-- Reply 1 if free, 0 if holds are left, nil if the owner does not hold it; the latch answers a second call
local known = redis.call('get', KEYS[3])
if known ~= false then return tonumber(known) end
if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then return nil end
if redis.call('hincrby', KEYS[1], ARGV[3], -1) > 0 then
  redis.call('pexpire', KEYS[1], ARGV[2])
  redis.call('set', KEYS[3], 0, 'px', ARGV[5])
  return 0
end
redis.call('del', KEYS[1])
redis.call(ARGV[4], KEYS[2], ARGV[1])
redis.call('set', KEYS[3], 1, 'px', ARGV[5])
return 1
