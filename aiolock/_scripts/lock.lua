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
--   ID                   acquisitions that ended lately, scored by when, in milliseconds, times ten, and how: a
--                        hundredth of any token, so that the two never meet. A command that arrives late finds its
--                        end here. A client names those that no command can be late for; they are forgotten, so that
--                        a name that is used all the time keeps the last of each client, and what went wrong lately.
--
-- All of it is one key, which is there when the lock is: a script that finds only some of its keys does not run while
-- their slot moves to another server.
--
-- The channel is no key: in a cluster a key that does not exist would keep a script from running while its slot moves.
--
-- Every call costs as much as the whole rest of a short script, so that each asks for no more than it needs.

local GRANTED, REFUSED, LOST, STALE, NOT_A_LOCK = 1, 0, -1, -2, -3
local FREED, EXPIRED, TAKEN, FORCED = 1, 2, 3, 4
local MOST_AT_ONCE = 16 -- Old ends that one command takes away, while all others wait.
local SELDOM = 16 -- Milliseconds; in one of so many a release that need not look for old ends does.

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

local function lengthen(key, lease)
  if redis.call('PTTL', key) < lease then redis.call('PEXPIRE', key, lease) end
end

-- Write the TTL that there is. A grant that is told again has to be written again: WAIT asks the replicas for what was
-- written on its own connection, and where that is nothing, all of them have it.
local function write_again(key)
  redis.call('PEXPIRE', key, math.max(1, redis.call('PTTL', key)))
end

local function microseconds()
  local now = redis.call('TIME')
  return tonumber(now[1]) * 1000000 + tonumber(now[2])
end

-- How the acquisition ended; nil while it has not.
local function ending(tokens, acquisition)
  local score = redis.call('ZSCORE', tokens, acquisition)
  return score and tonumber(score) % 10
end

-- Take away some of the ends that are older than the memory, the oldest first.
local function purge(tokens, now, memory)
  local old = redis.call('ZRANGEBYSCORE', tokens, 0, (now - memory) * 10, 'LIMIT', 0, MOST_AT_ONCE)
  for _, acquisition in ipairs(old) do redis.call('ZREM', tokens, acquisition) end
end

-- Remember how the acquisition ended, in place of *other*, which may be forgotten; '' for none. An end that replaces no
-- other takes old ones away, so that there are never more of those than come within the memory.
local function remember(tokens, how, acquisition, memory, retention, other)
  local now = math.floor(microseconds() / 1000)
  local replaces = other ~= '' and redis.call('ZREM', tokens, other) == 1
  if not replaces or now % SELDOM == 0 then purge(tokens, now, memory) end
  redis.call('ZADD', tokens, now * 10 + how, acquisition)
  redis.call('PEXPIRE', tokens, retention)
end

-- The reply to an acquisition that does not hold the lock, and its end from now on, in place of *other*: what has lost
-- the lock once gets it by no command of its own that is still on its way.
local function lost(key, tokens, acquisition, memory, retention, other)
  local how = ending(tokens, acquisition)
  if how and how ~= FREED then return {LOST, how, 0} end
  local why = state(key) == 'held' and TAKEN or EXPIRED
  if not how then
    redis.call('PEXPIRE', tokens, retention) -- First: a server out of memory refuses a first write that takes memory.
    remember(tokens, why, acquisition, memory, retention, other)
  end
  return {LOST, why, 0}
end

