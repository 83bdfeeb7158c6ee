-- read_write: the common part of the scripts of a read-write lock; it is put in front of each of them.
--
-- A read-write lock is in Redisson's layout:
--   lock    a hash: 'mode', which is 'read' or 'write'; for each reader a field, its owner, with its hold count; for the
--           writer the field OWNER:write, with its hold count. While it writes, no other owner reads.
--   record  a key for each of these fields, {lock}:FIELD:rwlock_timeout:1, which lives as long as the hold. Redisson
--           reads only its time to live. It has one for each hold of its own readers (:1, :2, ...), none for a writer.
-- The record of a hold of aiolock is a hash:
--   acquisition  id of the acquisition that has the hold; unique, made by the client
--   token        the fencing token of that acquisition
--   step         number of the last change of the hold count; an earlier step has no effect any more
--   renewal      number of the last renewal; an earlier one has no effect any more
-- These values are not in the lock, because Redisson counts the fields there.
--
-- Invariant: the lock lives at least as long as the longest of its holds, and no longer if these are FEW. If there are
-- more, a release does not look at all others: the lock may then live as long as the longest hold that it ever had, and
-- a writer that asks removes the expired holds.
--
-- Records of other holds, and the channel, are no keys of a script: in a cluster a key that does not exist would keep
-- the script from running while its slot moves. Records that cannot be read then count as alive, and so do records that
-- are missing at the server to which the slot moves: they may come later.

local RECORD = ':rwlock_timeout:'
-- Any client can write any count, and a loop over one hold's records blocks the server.
local MOST_RECORDS = 1000

-- The hash tag of the lock's keys, with its braces, by Redisson's rule.
local function tag(lock)
  return string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'
end

local function channel_of(lock)
  return 'redisson_rwlock:' .. tag(lock)
end

local function record_of(lock, field, number)
  return tag(lock) .. ':' .. field .. RECORD .. number
end

-- The field of the hold with that record.
local function field_of(lock, record)
  return string.sub(record, #tag(lock) + 2, -#RECORD - 2)
end

local function writes(field)
  return string.sub(field, -6) == ':write'
end

local function owner_of(field)
  return writes(field) and string.sub(field, 1, -7) or field
end

-- The state of the lock: 'free', 'read', 'write', or 'foreign' for a key that is no such lock and must not be touched;
-- and the milliseconds left.
local function state(lock)
  local ttl = redis.call('PTTL', lock)
  if ttl == -2 then return 'free', 0 end
  if ttl == -1 or redis.call('TYPE', lock).ok ~= 'hash' then return 'foreign', 0 end
  local mode = redis.call('HGET', lock, 'mode')
  if mode == 'read' or mode == 'write' then return mode, ttl end
  return 'foreign', 0
end

-- The value of *what* in the record if *acquisition* has the hold, else nil; nil also for keys that are something else.
local function if_held_by(acquisition, lock, record, what)
  local found = redis.pcall('HMGET', record, 'acquisition', what)
  if found.err and redis.call('TYPE', record).ok == 'hash' then
    -- The refusal has another reason: raise that error.
    redis.call('HMGET', record, what)
  end
  if found[1] ~= acquisition then return nil end
  return redis.pcall('HEXISTS', lock, field_of(lock, record)) == 1 and found[2] or nil
end

-- Whether there is surely no *record* of the lock. While the slot moves, both servers refuse to look for two keys if one
-- of them is elsewhere; asked for one key, the new server would say that it does not exist.
local function is_missing(lock, record)
  return redis.pcall('EXISTS', lock, record) == 1
end

-- Whether the writer has expired while its owner still reads, or while others read because the owner has detached its own
-- read hold. Redisson's writers have no record, either; but beside them only their owner reads, without a record of ours.
local function is_over(lock, field)
  if not is_missing(lock, record_of(lock, field, 1)) then return false end
  local owner = owner_of(field)
  if redis.call('HLEN', lock) - 2 > redis.call('HEXISTS', lock, owner) then return true end
  return redis.pcall('TYPE', record_of(lock, owner, 1)).ok == 'hash'
end

-- Milliseconds that a hold has left; those of the lock if that is not known, as for a writer of Redisson's.
local function left_of(lock, field, count)
  local most = -2
  for number = 1, math.min(count, MOST_RECORDS) do
    local record = record_of(lock, field, number)
    local left = redis.pcall('PTTL', record)
    local is_known = type(left) == 'number' and (left ~= -2 or is_missing(lock, record))
    most = math.max(most, is_known and left or redis.call('PTTL', lock))
  end
  if most < 0 and writes(field) and not is_over(lock, field) then return redis.call('PTTL', lock) end
  return math.max(0, most)
end

local FEW = 32

-- Some holds may have expired: returns whether any is left. The lock gets the life of the longest of a few holds; with
-- many holds, the search ends at the first live one.
local function settle(lock)
  local fields, longest = redis.call('HGETALL', lock), 0
  local are_many = #fields / 2 - 1 > FEW
  for place = 1, #fields, 2 do
    if are_many and longest > 0 then return true end
    -- The mode is no number.
    local count = tonumber(fields[place + 1])
    local left = count and left_of(lock, fields[place], count)
    if left == 0 then redis.call('HDEL', lock, fields[place]) end
    longest = math.max(longest, left or 0)
  end
  if longest > 0 then
    redis.call('PEXPIRE', lock, longest)
    return true
  end
  redis.call('DEL', lock)
  return false
end

-- Remove an expired writer; returns whether there was one.
local function drop_expired_writer(lock)
  if redis.call('HGET', lock, 'mode') ~= 'write' then return false end
  -- With a writer there are few fields; the counts among them do not match.
  for _, field in ipairs(redis.call('HGETALL', lock)) do
    if writes(field) and is_over(lock, field) then
      redis.call('HDEL', lock, field)
      redis.call('HSET', lock, 'mode', 'read')
      return true
    end
  end
  return false
end

-- Remove the hold of *field*; returns whether another is left.
local function leave(lock, field, record)
  if redis.call('HLEN', lock) == 2 then
    redis.call('DEL', lock, record)
    return false
  end
  drop_expired_writer(lock)
  redis.call('DEL', record)
  redis.call('HDEL', lock, field)
  if writes(field) then redis.call('HSET', lock, 'mode', 'read') end
  return redis.call('HLEN', lock) - 1 > FEW or settle(lock)
end

-- End an acquisition that does not have the hold, whether it had it or never got it; returns the reply. Its end is
-- remembered in place of *older*: no late command of the acquisition is granted the lock any more.
local function end_as_lost(lock, tokens, record, acquisition, memory, retention, older)
  local field, mode = field_of(lock, record), state(lock)
  local others = 0
  if mode == 'write' then
    others = 1 - redis.call('HEXISTS', lock, owner_of(field) .. ':write')
  elseif mode == 'read' and writes(field) then
    others = redis.call('HLEN', lock) - 1 - redis.call('HEXISTS', lock, owner_of(field))
  end
  return end_as(tokens, acquisition, others > 0 and TAKEN or EXPIRED, memory, retention, older)
end
