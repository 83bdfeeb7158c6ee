-- KEYS lock, queue, times, channel, latch  ARGV message, lease in ms, owner, now in ms, PUBLISH, how long the latch lives in ms
-- Reply 1 if free, 0 if holds are left, nil if the owner does not hold it; the latch answers a second call
local known = redis.call('get', KEYS[5])
if known ~= false then return tonumber(known) end
while true do
  local first = redis.call('lindex', KEYS[2], 0)
  if first == false then break end
  local time = redis.call('zscore', KEYS[3], first)
  if time == false or tonumber(time) > tonumber(ARGV[4]) then break end
  redis.call('zrem', KEYS[3], first)
  redis.call('lpop', KEYS[2])
end
local function tell_next()
  local first = redis.call('lindex', KEYS[2], 0)
  if first ~= false then redis.call(ARGV[5], KEYS[4] .. ':' .. first, ARGV[1]) end
end
if redis.call('exists', KEYS[1]) == 0 then
  tell_next()
  redis.call('set', KEYS[5], 1, 'px', ARGV[6])
  return 1
end
if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then return nil end
if redis.call('hincrby', KEYS[1], ARGV[3], -1) > 0 then
  redis.call('pexpire', KEYS[1], ARGV[2])
  redis.call('set', KEYS[5], 0, 'px', ARGV[6])
  return 0
end
redis.call('del', KEYS[1])
redis.call('set', KEYS[5], 1, 'px', ARGV[6])
tell_next()
return 1
