-- KEYS lock, channel, start of the keys of the owner's holds, start of those of all, latch
-- ARGV message, owner, PUBLISH, how long the latch lives in ms
-- Reply 1 if free, 0 if holds are left, nil if the owner has none; the latch answers a second call
local known = redis.call('get', KEYS[5])
if known ~= false then return tonumber(known) end
local mode = redis.call('hget', KEYS[1], 'mode')
if mode == false then
  redis.call(ARGV[3], KEYS[2], ARGV[1])
  redis.call('set', KEYS[5], 1, 'px', ARGV[4])
  return nil
end
if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return nil end
local left = redis.call('hincrby', KEYS[1], ARGV[2], -1)
if left == 0 then redis.call('hdel', KEYS[1], ARGV[2]) end
redis.call('del', KEYS[3] .. ':' .. (left + 1))
if redis.call('hlen', KEYS[1]) > 1 then
  local longest = -3
  for _, field in ipairs(redis.call('hkeys', KEYS[1])) do
    for number = tonumber(redis.call('hget', KEYS[1], field)) or 0, 1, -1 do
      longest = math.max(longest, redis.call('pttl', KEYS[4] .. ':' .. field .. ':rwlock_timeout:' .. number))
    end
  end
  if longest > 0 then redis.call('pexpire', KEYS[1], longest) end
  if longest > 0 or mode == 'write' then
    redis.call('set', KEYS[5], 0, 'px', ARGV[4])
    return 0
  end
end
redis.call('del', KEYS[1])
redis.call(ARGV[3], KEYS[2], ARGV[1])
redis.call('set', KEYS[5], 1, 'px', ARGV[4])
return 1
