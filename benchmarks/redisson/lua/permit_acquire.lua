-- KEYS count, permits, channel  ARGV how many, when they expire in ms, now in ms, what never expires, PUBLISH, id of each
-- Reply OK if granted, when the next one expires, or nil
local expired = redis.call('zrangebyscore', KEYS[2], 0, ARGV[3], 'limit', 0, ARGV[1])
if #expired > 0 then
  redis.call('zrem', KEYS[2], unpack(expired))
  local count = redis.call('incrby', KEYS[1], #expired)
  if tonumber(count) > 0 then redis.call(ARGV[5], KEYS[3], count) end
end
local count = redis.call('get', KEYS[1])
if count ~= false and tonumber(count) >= tonumber(ARGV[1]) then
  redis.call('decrby', KEYS[1], ARGV[1])
  for place = 6, #ARGV do redis.call('zadd', KEYS[2], ARGV[2], ARGV[place]) end
  local ttl = redis.call('pttl', KEYS[1])
  if ttl > 0 then redis.call('pexpire', KEYS[2], ttl) end
  return 'OK'
end
local first = redis.call('zrange', KEYS[2], 0, 0, 'withscores')
if first[1] and first[2] ~= ARGV[4] then return ':' .. first[2] end
return nil
