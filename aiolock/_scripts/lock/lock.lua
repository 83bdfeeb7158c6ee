-- lock: what the scripts of a lock share; it is put in front of each of them.
--
-- A lock is a hash in Redisson's layout: one field, the owner, with its hold count; and a TTL, always.
-- aiolock adds fields of its own, which Redisson ignores:
--   aiolock:acquisition  id of the acquisition that holds the lock; unique, made by the client
--   aiolock:token        the fencing token of that acquisition
--   aiolock:step         number of the last change of the hold count; an earlier step changes nothing any more
--   aiolock:renewal      number of the last renewal; an earlier one changes nothing any more
--   aiolock:fair         there if it was granted to a fair lock
--
-- All of it is one key, which is there when the lock is: a script that finds only some of its keys does not run while
-- their slot moves to another server.
--
-- Who is refused the plain lock because a fair one of the name is held leaves in the set of tokens, which is where the line
-- of the fair ones is (fair.lua):
--   plain                scored below zero by when the plain ones are due, in milliseconds; it stays when the line is empty
--                        for a moment, for who waits does not ask again
--   plain's turn         likewise until when nobody who is in that line is granted the lock
--
-- The channel is no key: in a cluster a key that does not exist would keep a script from running while its slot moves.

local PLAIN = -800000000000000 -- Added to these times.

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

-- The reply to an acquisition that does not hold the lock, and its end from now on, in place of *others*: what has lost
-- the lock once gets it by no command of its own that is still on its way.
local function lost(key, tokens, acquisition, memory, retention, others)
  return has_ended(tokens, acquisition, state(key) == 'held' and TAKEN or EXPIRED, memory, retention, others)
end

