local GRANTED, REFUSED, LOST, STALE, NOT_A_LOCK = 1, 0, -1, -2, -3
local FREED, EXPIRED, TAKEN, FORCED = 1, 2, 3, 4
local MOST_AT_ONCE = 16
local SELDOM = 16
local function microseconds()
  local now = redis.call('TIME')
  return tonumber(now[1]) * 1000000 + tonumber(now[2])
end
local function ending(tokens, acquisition)
  local score = redis.call('ZSCORE', tokens, acquisition)
  return score and tonumber(score) % 10
end
local function purge(tokens, now, memory)
  local old = redis.call('ZRANGEBYSCORE', tokens, 0, (now - memory) * 10, 'LIMIT', 0, MOST_AT_ONCE)
  for _, acquisition in ipairs(old) do redis.call('ZREM', tokens, acquisition) end
end
local function remember(tokens, how, acquisition, memory, retention, others)
  local now, replaced = math.floor(microseconds() / 1000), 0
  for other in string.gmatch(others, '%S+') do replaced = replaced + redis.call('ZREM', tokens, other) end
  if replaced == 0 or now % SELDOM == 0 then purge(tokens, now, memory) end
  redis.call('ZADD', tokens, now * 10 + how, acquisition)
  redis.call('PEXPIRE', tokens, retention)
end
local function has_ended(tokens, acquisition, why, memory, retention, others)
  local how = ending(tokens, acquisition)
  if how and how ~= FREED then return {LOST, how, 0} end
  if not how then
    redis.call('PEXPIRE', tokens, retention)
    remember(tokens, why, acquisition, memory, retention, others)
  end
  return {LOST, why, 0}
end
local function lengthen(key, lease)
  if redis.call('PTTL', key) < lease then redis.call('PEXPIRE', key, lease) end
end
local function write_again(key)
  redis.call('PEXPIRE', key, math.max(1, redis.call('PTTL', key)))
end
local PLAIN = -800000000000000
local function state(key)
  local ttl = redis.call('PTTL', key)
  if ttl == -2 then return 'free', 0 end
  if ttl == -1 or redis.call('TYPE', key).ok ~= 'hash' then return 'foreign', 0 end
  if redis.call('HEXISTS', key, 'aiolock:acquisition') == 1 then return 'held', ttl end
  if redis.call('HLEN', key) ~= 1 then return 'foreign', 0 end
  local count = redis.call('HVALS', key)[1]
  if string.match(count, '^%d+$') then return 'held', ttl end
  return 'foreign', 0
end
local function if_held_by(acquisition, key, field)
  local record = redis.pcall('HMGET', key, 'aiolock:acquisition', field)
  if record.err and redis.call('TYPE', key).ok == 'hash' then
    redis.call('HMGET', key, field)
  end
  return record[1] == acquisition and record[2] or nil
end
local function lost(key, tokens, acquisition, memory, retention, others)
  return has_ended(tokens, acquisition, state(key) == 'held' and TAKEN or EXPIRED, memory, retention, others)
end
local retention, memory = ARGV[1], tonumber(ARGV[2])
local function renew(key, tokens, acquisition, number, lease)
  local last = if_held_by(acquisition, key, 'aiolock:renewal')
  if not last then return lost(key, tokens, acquisition, memory, retention, '') end
  if tonumber(number) > tonumber(last) then
    redis.call('PEXPIRE', tokens, retention)
    redis.call('HSET', key, 'aiolock:renewal', number)
    lengthen(key, tonumber(lease))
  else
    write_again(key)
  end
  return {GRANTED, tonumber(redis.call('HGET', key, 'aiolock:token')), redis.call('PTTL', key)}
end
local replies = {}
for i = 1, #KEYS / 2 do
  replies[i] = renew(KEYS[2 * i - 1], KEYS[2 * i], ARGV[3 * i], ARGV[3 * i + 1], ARGV[3 * i + 2])
end
return replies
