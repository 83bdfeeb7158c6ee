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
local function again(key, tokens, owner, acquisition, step, holds, lease, retention)
  local last = if_held_by(acquisition, key, 'aiolock:step')
  if not last then return nil end
  if step > tonumber(last) then
    redis.call('PEXPIRE', tokens, retention)
    redis.call('HSET', key, owner, holds, 'aiolock:step', step)
    lengthen(key, lease)
  else
    write_again(key)
  end
  return {GRANTED, tonumber(redis.call('HGET', key, 'aiolock:token')), redis.call('PTTL', key)}
end
local function grant(key, tokens, owner, acquisition, step, holds, lease, retention, last, ...)
  local token = math.max(tonumber(last or 0) + 1, microseconds())
  redis.call('ZADD', tokens, token, 'token')
  redis.call('PEXPIRE', tokens, retention)
  redis.call('HSET', key, owner, holds, 'aiolock:acquisition', acquisition, 'aiolock:token', token,
    'aiolock:step', step, 'aiolock:renewal', 0, ...)
  redis.call('PEXPIRE', key, lease)
  return {GRANTED, token, lease}
end
local TICKETS, ALIVE, ELSE = -4000000000000000, -1000000000000000, -900000000000000
local HEARTBEAT = 250
local SILENCE = 700
local TURN = 100
local MOST_PASSED = 64
local function client_of(acquisition)
  return string.match(acquisition, '^(.*):%d+$')
end
local function first_in_line(tokens)
  local first = redis.call('ZRANGE', tokens, TICKETS, ELSE, 'BYSCORE', 'LIMIT', 0, 1)[1]
  if not first then return nil end
  if string.sub(first, 1, 7) == 'ticket ' then return string.sub(first, 8) end
  redis.call('ZREMRANGEBYSCORE', tokens, ALIVE, ELSE)
  return nil
end
local function leave_line(tokens, acquisition)
  return redis.call('ZREM', tokens, 'ticket ' .. acquisition) == 1
end
local function next_in_line(tokens, now, speaking, own)
  for _ = 1, MOST_PASSED do
    local first = first_in_line(tokens)
    if not first or first == own then return first end
    local client = client_of(first)
    if client ~= speaking then
      local alive = redis.call('ZSCORE', tokens, 'alive ' .. client)
      if alive and tonumber(alive) - ALIVE > now then return first end
    end
    leave_line(tokens, first)
  end
  return false
end
local owner, acquisition, step, holds = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local lease, retention, arrived = tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[9])
local client = client_of(acquisition)
local function stand_in_line()
  redis.call('ZADD', KEYS[2], 'NX', TICKETS + arrived, 'ticket ' .. acquisition)
end
local function leads()
  local first = first_in_line(KEYS[2])
  return first and client_of(first) == client and 1 or 0
end
local kind, ttl = state(KEYS[1])
if kind == 'held' or holds > 1 then
  local granted = again(KEYS[1], KEYS[2], owner, acquisition, step, holds, lease, retention)
  if granted then return {granted[1], granted[2], granted[3], HEARTBEAT, leads()} end
end
if holds > 1 then return lost(KEYS[1], KEYS[2], acquisition, tonumber(ARGV[7]), retention, '') end
if kind == 'foreign' then return {NOT_A_LOCK, 0, 0} end
local scores = redis.call('ZMSCORE', KEYS[2], acquisition, 'token', "plain's turn")
if scores[1] then return {STALE, 0, 0} end
local time = microseconds()
local now, soon = math.floor(time / 1000), HEARTBEAT
if kind == 'held' then
  if ARGV[8] == '0' then return {REFUSED, 0, ttl} end
  soon = math.min(soon, ttl)
else
  if arrived > 0 then stand_in_line() end
  local first = next_in_line(KEYS[2], now, arrived > 0 and client, acquisition)
  local turn = scores[3] and tonumber(scores[3]) - PLAIN - now
  if turn and turn > 0 then
    soon = turn
  elseif first == nil or first == acquisition then
    if first then leave_line(KEYS[2], acquisition) end
    if turn then redis.call('ZREM', KEYS[2], "plain's turn") end
    local granted = grant(KEYS[1], KEYS[2], owner, acquisition, step, holds, lease, retention, scores[2], 'aiolock:fair', 1)
    return {granted[1], granted[2], granted[3], HEARTBEAT, leads()}
  elseif not first then
    soon = 0
  end
end
if ARGV[8] == '0' then return {REFUSED, 0, soon} end
if arrived == 0 then arrived = time end
stand_in_line()
redis.call('ZADD', KEYS[2], ALIVE + now + SILENCE, 'alive ' .. client)
redis.call('PEXPIRE', KEYS[2], retention)
return {REFUSED, arrived, soon, 1, leads()}
