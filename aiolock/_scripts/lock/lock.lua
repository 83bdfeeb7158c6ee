-- lock: the common part of the scripts of a lock; it is put in front of each of them.
--
-- A lock is a hash in Redisson's layout: one field, the owner, with its hold count; and a TTL, always.
-- aiolock adds fields of its own, which Redisson ignores:
--   aiolock:acquisition  id of the acquisition that holds the lock; unique, made by the client
--   aiolock:token        the fencing token of that acquisition
--   aiolock:step         number of the last change of the hold count; an earlier step has no effect any more; absent
--                        while it is 1
--   aiolock:renewal      number of the last renewal; an earlier one has no effect any more; absent before the first
--   aiolock:fair         exists if the lock was granted as a fair lock
--
-- All of this is one key, which exists while the lock is held: a script that finds only some of its keys does not run while
-- their slot moves to another server. The server cuts a script short that uses a missing key meanwhile, and keeps its earlier
-- writes: therefore a script that deletes a lock does not use the key again.
--
-- If a waiter is refused the plain lock because the fair lock of the name is held, it leaves marks in the set of tokens,
-- which also contains the line of the fair lock (fair.lua):
--   plain                scored below zero by the time at which the plain waiters are due, in milliseconds. Until then the
--                        line goes first. While this mark exists, each release of the fair lock also tells the plain
--                        waiters: they learn the end of the next holder's lease, and get the lock if that holder never
--                        comes. The mark stays if the line is empty for a moment, because plain waiters do not ask again
--   plain's turn         scored in the same way, by the time until which no waiter in the line is granted the lock
--
-- The channel is no key: in a cluster a key that does not exist would keep a script from running while its slot moves.

-- This is added to the times of these two marks.
local PLAIN = -800000000000000
-- The scores of the line's tickets, see fair.lua, are between these.
local FIRST_TICKET, LAST_TICKET = -4000000000000000, -1000000000000000
-- Milliseconds for which the line goes first when a waiter was refused the plain lock.
local LINE_FIRST = 1000

-- The state of the lock: 'free', 'held', or 'foreign' for a key that is no lock and must not be touched; and the
-- milliseconds left.
local function state(key)
  local ttl = redis.call('PTTL', key)
  if ttl == -2 then return 'free', 0 end
  if ttl == -1 then return 'foreign', 0 end
  local is_ours = redis.pcall('HEXISTS', key, 'aiolock:acquisition')
  if is_ours == 1 then return 'held', ttl end
  if is_ours ~= 0 then
    if redis.call('TYPE', key).ok ~= 'hash' then return 'foreign', 0 end
    -- The refusal has another reason: raise that error.
    redis.call('HEXISTS', key, 'aiolock:acquisition')
  end
  if redis.call('HLEN', key) ~= 1 then return 'foreign', 0 end
  local count = redis.call('HVALS', key)[1]
  if string.match(count, '^%d+$') then return 'held', ttl end
  return 'foreign', 0
end

-- The value of *field* if *acquisition* holds the lock, else nil; nil also for a key that is no hash. The value of an absent
-- field is *first*.
local function if_held_by(acquisition, key, field, first)
  local record = redis.pcall('HMGET', key, 'aiolock:acquisition', field)
  if record.err and redis.call('TYPE', key).ok == 'hash' then
    -- The refusal has another reason: raise that error.
    redis.call('HMGET', key, field)
  end
  return record[1] == acquisition and (record[2] or first) or nil
end

-- End an acquisition that does not hold the lock, whether it had the lock or never got it; returns the reply. Its end is
-- remembered in place of *others*: no late command of the acquisition is granted the lock any more.
local function end_as_lost(key, tokens, acquisition, memory, retention, others)
  return end_as(tokens, acquisition, state(key) == 'held' and TAKEN or EXPIRED, memory, retention, others)
end

