-- lock: what the scripts of a lock share; it is put in front of each of them.
--
-- A lock is a hash in Redisson's layout: one field, the owner, with its hold count; and a TTL, always.
-- aiolock adds fields of its own, which Redisson ignores:
--   aiolock:acquisition  id of the acquisition that holds the lock; unique, made by the client
--   aiolock:token        the fencing token of that acquisition
--   aiolock:step         number of the last change of the hold count; an earlier step changes nothing any more
--   aiolock:renewal      number of the last renewal; an earlier one changes nothing any more
--
-- The sorted set of tokens keeps, per name:
--   token                scored by the last token, in microseconds
--   OUTCOME:ID           acquisitions that ended lately, scored by when, in milliseconds: a thousandth of any
--                        token, so that the two never meet. A command that arrives late finds its end here.

local GRANTED, REFUSED, LOST, STALE, NOT_A_LOCK = 1, 0, -1, -2, -3
local OUTCOMES = {'freed', 'expired', 'taken', 'forced'}

-- 'free', 'held', or 'foreign' for a key that is no lock and must not be touched; and the milliseconds left.
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

local function is_held_by(key, acquisition)
  return redis.call('HGET', key, 'aiolock:acquisition') == acquisition
end

local function lengthen(key, lease)
  if redis.call('PTTL', key) < lease then redis.call('PEXPIRE', key, lease) end
end

local function microseconds()
  local now = redis.call('TIME')
  return tonumber(now[1]) * 1000000 + tonumber(now[2])
end

local function integer(number)
  return string.format('%.0f', number)
end

-- How the acquisition ended, as a place in OUTCOMES; nil while it has not.
local function ending(tokens, acquisition)
  for place, outcome in ipairs(OUTCOMES) do
    if redis.call('ZSCORE', tokens, outcome .. ':' .. acquisition) then return place end
  end
end

local function remember(tokens, outcome, acquisition, memory, retention)
  local now = math.floor(microseconds() / 1000)
  redis.call('ZREMRANGEBYSCORE', tokens, 0, integer(now - memory))
  redis.call('ZADD', tokens, integer(now), outcome .. ':' .. acquisition)
  redis.call('PEXPIRE', tokens, retention)
end

-- The reply to an acquisition that does not hold the lock, and its end from now on: what has lost the lock once
-- gets it by no command of its own that is still on its way.
local function lost(tokens, kind, acquisition, memory, retention)
  local place = ending(tokens, acquisition)
  if place and place > 1 then return {LOST, place, 0} end
  local why = kind == 'free' and 2 or 3
  if not place then remember(tokens, OUTCOMES[why], acquisition, memory, retention) end
  return {LOST, why, 0}
end

