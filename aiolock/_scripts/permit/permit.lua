-- permit: what the scripts of a semaphore share whose permits expire; it is put in front of each of them.
--
-- A semaphore is in Redisson's layout:
--   count    a string: how many permits are available
--   permits  a sorted set of those that are acquired, scored by when they expire, in milliseconds
-- A permit of aiolock is called ID#NUMBER there, by its acquisition, which is OWNER#NUMBER; Redisson's are 16 bytes. Time
-- is the server's. A permit that has expired is available; the next acquire puts it back.
--
-- Who waits for several permits keeps others from overtaking, while it goes on asking (see turns.lua).

local PROBE = 30000 -- Milliseconds until a waiter asks again, when nothing is known that would help before.
local MOST_BACK = 128 -- Expired permits that one acquire puts back at most, beside those that it wants.

local function permit(acquisition, number)
  return acquisition .. '#' .. number
end

-- When the permits of *acquisition* expire; nil if it has none, also when the key is no sorted set.
local function expiry(permits, acquisition)
  local score = redis.pcall('ZSCORE', permits, permit(acquisition, 1))
  if type(score) == 'table' then
    if redis.call('TYPE', permits).ok == 'zset' then redis.call('ZSCORE', permits, permit(acquisition, 1)) end
    return nil
  end
  return score and tonumber(score)
end

-- Whether the keys are something else, and must not be touched.
local function is_foreign(count, permits)
  local kind, others = redis.call('TYPE', count).ok, redis.call('TYPE', permits).ok
  if kind ~= 'none' and kind ~= 'string' or others ~= 'none' and others ~= 'zset' then return true end
  return kind == 'string' and not string.match(redis.call('GET', count), '^%-?%d+$')
end

-- Take the permits of *acquisition* out of those that are acquired; how many there were. Its first may be gone without
-- the others: Redisson puts single ones back that have expired by its own clock.
local function take_out(permits, acquisition, number)
  local taken = 0
  if redis.call('TYPE', permits).ok ~= 'zset' then return 0 end
  for i = 1, number do taken = taken + redis.call('ZREM', permits, permit(acquisition, i)) end
  return taken
end

-- Make *number* more available, unless nobody has said how many there are.
local function put_back(count, number)
  if number ~= 0 and redis.call('EXISTS', count) == 1 then redis.call('INCRBY', count, number) end
end

-- Tell all who wait how many permits are available, as Redisson does; how many were told. But no number below zero, at
-- which its listeners fail.
local function announce(count, channel, publish)
  local available = redis.call('GET', count) or '0'
  return tonumber(available) < 0 and 0 or redis.call(publish, channel, available)
end

-- The reply to an acquisition that has no permits, and its end from now on, in place of *others*.
local function lost(tokens, acquisition, memory, retention, others)
  return has_ended(tokens, acquisition, EXPIRED, memory, retention, others)
end

