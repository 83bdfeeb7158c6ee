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
local function give_back(key, tokens, owner, acquisition, step, left, memory, retention, others)
  local last = if_held_by(acquisition, key, 'aiolock:step')
  if not last then return nil end
  if left == 0 then
    redis.call('DEL', key)
    remember(tokens, FREED, acquisition, memory, retention, others)
  elseif step > tonumber(last) then
    redis.call('PEXPIRE', tokens, retention)
    redis.call('HSET', key, owner, left, 'aiolock:step', step)
  end
  return left == 0
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
local owner, acquisition, step, left = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local function begin_turn_of_plain(now)
  local due = redis.call('ZSCORE', KEYS[2], 'plain')
  if not due or tonumber(due) - PLAIN > now then return false end
  redis.call('ZREM', KEYS[2], 'plain')
  redis.call('ZADD', KEYS[2], PLAIN + now + TURN, "plain's turn")
  return true
end
local function wake()
  local now = math.floor(microseconds() / 1000)
  local first = next_in_line(KEYS[2], now)
  if first == false then first = first_in_line(KEYS[2]) end
  if begin_turn_of_plain(now) or not first then return redis.call(ARGV[9], ARGV[8], '0') end
  local client = client_of(first)
  local receivers = redis.call(ARGV[9], ARGV[8] .. ':' .. client, '0')
  return client == client_of(acquisition) and receivers or 0
end
local memory = tonumber(ARGV[6])
local freed = give_back(KEYS[1], KEYS[2], owner, acquisition, step, left, memory, ARGV[5], ARGV[7])
if freed then return {GRANTED, wake(), 0} end
if freed == false then return {GRANTED, 0, 0} end
if leave_line(KEYS[2], acquisition) and state(KEYS[1]) == 'free' then wake() end
if ending(KEYS[2], acquisition) == FREED then return {GRANTED, 0, 0} end
return lost(KEYS[1], KEYS[2], acquisition, memory, ARGV[5], ARGV[7])
