-- lock: what the scripts of a lock share; it is put in front of each of them.
--
-- A lock is a hash in Redisson's layout: one field, the owner, with its hold count; and a TTL, always.
-- aiolock adds fields of its own, which Redisson ignores:
--   aiolock:acquisition  id of the acquisition that holds the lock; unique, made by the client
--   aiolock:token        the fencing token of that acquisition
--   aiolock:step         number of the last change of the hold count; an earlier step changes nothing any more
--   aiolock:renewal      number of the last renewal; an earlier one changes nothing any more
--
-- The token is a string: the last one that was granted for the name, in microseconds.
--
-- The ended acquisitions are a sorted set of ids, scored by when they ended, in milliseconds, times ten, and how. A
-- command that arrives late finds its end here. All of them go once none has come for as long as they are remembered.
-- A client names those that no command can be late for, so that a name that is used all the time remembers no more than
-- the last of each client, and what went wrong lately.
--
-- The channel is no key: in a cluster a key that does not exist would keep a script from running while its slot moves.
--
-- Every call costs as much as the whole rest of a short script, so that each asks for no more than it needs.

local GRANTED, REFUSED, LOST, STALE, NOT_A_LOCK = 1, 0, -1, -2, -3
local FREED, EXPIRED, TAKEN, FORCED = 1, 2, 3, 4
local MOST_AT_ONCE = 16 -- Old ends that one command takes away, for which all others wait.

-- What the lock is to an acquisition that does not hold it: 'free', 'held', or 'foreign' for a key that is no lock and
-- must not be touched; and the milliseconds left.
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

-- The value of *field* if *acquisition* holds the lock, else nil; also for a key that is no hash.
local function if_held_by(acquisition, key, field)
  local record = redis.pcall('HMGET', key, 'aiolock:acquisition', field)
  if record.err and redis.call('TYPE', key).ok == 'hash' then
    redis.call('HMGET', key, field) -- Refused for another reason, which this raises.
  end
  return record[1] == acquisition and record[2] or nil
end

-- It writes the TTL also where that stays as it is: then the HSET that follows is not a script's first write, which a
-- server out of memory refuses if it takes memory.
local function lengthen(key, lease)
  redis.call('PEXPIRE', key, math.max(1, lease, redis.call('PTTL', key)))
end

-- Write the TTL that there is. A grant that is told again has to be written again: WAIT asks the replicas for what was
-- written on its own connection, and where that is nothing, all of them have it.
local function write_again(key)
  lengthen(key, 0)
end

-- A first write that takes no memory, and changes nothing: *id* has not ended. A server out of memory refuses a first
-- write that takes any, but none that follows.
local function write_first(ended, id)
  redis.call('ZREM', ended, id)
end

local function microseconds()
  local now = redis.call('TIME')
  return tonumber(now[1]) * 1000000 + tonumber(now[2])
end

-- How the acquisition ended; nil while it has not.
local function ending(ended, acquisition)
  local score = redis.call('ZSCORE', ended, acquisition)
  return score and tonumber(score) % 10
end

-- Take away some of what is older than the memory, the oldest first.
local function purge(ended, now, memory)
  local old = redis.call('ZRANGEBYSCORE', ended, 0, (now - memory) * 10, 'LIMIT', 0, MOST_AT_ONCE)
  for _, id in ipairs(old) do redis.call('ZREM', ended, id) end
end

-- Remember how the acquisition ended, in place of *other*, which may be forgotten; '' for none. Whatever replaces no
-- other purges, so that there are never more of them than come within the memory.
local function remember(ended, how, acquisition, memory, other)
  local now = math.floor(microseconds() / 1000)
  if other == '' or redis.call('ZREM', ended, other) == 0 then purge(ended, now, memory) end
  redis.call('ZADD', ended, now * 10 + how, acquisition)
  redis.call('PEXPIRE', ended, memory)
end

-- The reply to an acquisition that does not hold the lock, and its end from now on: what has lost the lock once
-- gets it by no command of its own that is still on its way.
local function lost(key, ended, acquisition, memory)
  local how = ending(ended, acquisition)
  if how and how ~= FREED then return {LOST, how, 0} end
  local why = state(key) == 'held' and TAKEN or EXPIRED
  if not how then
    write_first(ended, acquisition)
    remember(ended, why, acquisition, memory, '')
  end
  return {LOST, why, 0}
end

