local GRANTED, REFUSED, LOST, STALE, NOT_A_LOCK = 1, 0, -1, -2, -3
local FREED, EXPIRED, TAKEN, FORCED = 1, 2, 3, 4
local MOST_AT_ONCE = 16
local SELDOM = 16
local function remember(tokens, how, acquisition, memory, retention, others, time)
  time = time or redis.call('TIME')
  local now, replaced = math.floor(time[1] * 1000 + time[2] / 1000), others and 0 or 1
  if others and not string.find(others, ' ', 1, true) then
    if others ~= '' then replaced = redis.call('ZREM', tokens, others) end
  elseif others then
    for other in string.gmatch(others, '%S+') do replaced = replaced + redis.call('ZREM', tokens, other) end
  end
  if replaced == 0 or now % SELDOM == 0 then
    local old = redis.call('ZRANGEBYSCORE', tokens, 0, (now - memory) * 10, 'LIMIT', 0, MOST_AT_ONCE)
    if old[1] then redis.call('ZREM', tokens, unpack(old)) end
  end
  redis.call('ZADD', tokens, string.format('%.0f', now * 10 + how), acquisition)
  redis.call('PEXPIRE', tokens, retention)
end
local function microseconds()
  local now = redis.call('TIME')
  return tonumber(now[1]) * 1000000 + tonumber(now[2])
end
local function milliseconds()
  return math.floor(microseconds() / 1000)
end
local function ending(tokens, acquisition)
  local score = redis.call('ZSCORE', tokens, acquisition)
  return score and tonumber(score) % 10
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
local FIRST_TICKET, LAST_TICKET = -4000000000000000, -1000000000000000
local function state(key)
  local ttl = redis.call('PTTL', key)
  if ttl == -2 then return 'free', 0 end
  if ttl == -1 then return 'foreign', 0 end
  local is_ours = redis.pcall('HEXISTS', key, 'aiolock:acquisition')
  if is_ours == 1 then return 'held', ttl end
  if is_ours ~= 0 then
    if redis.call('TYPE', key).ok ~= 'hash' then return 'foreign', 0 end
    redis.call('HEXISTS', key, 'aiolock:acquisition')
  end
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
local known = ending(KEYS[2], ARGV[1])
if known then return {GRANTED, known == FREED and 1 or 0, 0} end
local kind = state(KEYS[1])
if kind == 'foreign' then return {NOT_A_LOCK, 0, 0} end
local freed, memory = kind == 'held', tonumber(ARGV[3])
if freed and ARGV[4] ~= '' then freed = redis.call('HGET', KEYS[1], 'aiolock:token') == ARGV[4] end
redis.call('PEXPIRE', KEYS[2], ARGV[2])
remember(KEYS[2], freed and FREED or EXPIRED, ARGV[1], memory, ARGV[2], '')
if not freed then return {GRANTED, 0, 0} end
local acquisition = redis.call('HGET', KEYS[1], 'aiolock:acquisition')
if acquisition then remember(KEYS[2], FORCED, acquisition, memory, ARGV[2], '') end
redis.call('DEL', KEYS[1])
redis.call(ARGV[6], ARGV[5], '0')
return {GRANTED, 1, 0}
