-- read_write: what the scripts of a read-write lock share; it is put in front of each of them.
--
-- A read-write lock is in Redisson's layout:
--   lock    a hash: 'mode', which is 'read' or 'write'; for each reader a field, its owner, with its hold count; for the
--           writer the field OWNER:write, with its hold count. While it writes, nobody else reads.
--   record  a key for each of these fields, {lock}:FIELD:rwlock_timeout:1, that lives as long as the hold. Redisson looks
--           only at how long that is. It has one for each hold of a reader of its own (:1, :2, ...), none for a writer.
-- The record of a hold of aiolock is a hash:
--   acquisition  id of the acquisition that has the hold; unique, made by the client
--   token        the fencing token of that acquisition
--   step         number of the last change of the hold count; an earlier step changes nothing any more
--   renewal      number of the last renewal; an earlier one changes nothing any more
-- They are not in the lock, because Redisson counts the fields there.
--
-- Invariant: the lock lives as long as the longest of its holds.
--
-- Records of others, and the channel, are no keys of a script: in a cluster a key that does not exist would keep it from
-- running while its slot moves. Where they cannot be read then, they count as alive.

local RECORD = ':rwlock_timeout:'

-- What all keys of the lock have in braces, by Redisson's rule.
local function tag(lock)
  return string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'
end

local function channel_of(lock)
  return 'redisson_rwlock:' .. tag(lock)
end

local function record_of(lock, field, number)
  return tag(lock) .. ':' .. field .. RECORD .. number
end

-- The field of the hold whose record it is.
local function field_of(lock, record)
  return string.sub(record, #tag(lock) + 2, -#RECORD - 2)
end

local function writes(field)
  return string.sub(field, -6) == ':write'
end

local function owner_of(field)
  return writes(field) and string.sub(field, 1, -7) or field
end

-- What the lock is: 'free', 'read', 'write', or 'foreign' for a key that is no such lock and must not be touched; and the
-- milliseconds left.
local function state(lock)
  local ttl = redis.call('PTTL', lock)
  if ttl == -2 then return 'free', 0 end
  if ttl == -1 or redis.call('TYPE', lock).ok ~= 'hash' then return 'foreign', 0 end
  local mode = redis.call('HGET', lock, 'mode')
  if mode == 'read' or mode == 'write' then return mode, ttl end
  return 'foreign', 0
end

-- The value of *what* in the record if *acquisition* has the hold, else nil; also for keys that are something else.
local function if_held_by(acquisition, lock, record, what)
  local found = redis.pcall('HMGET', record, 'acquisition', what)
  if found.err and redis.call('TYPE', record).ok == 'hash' then
    redis.call('HMGET', record, what) -- Refused for another reason, which this raises.
  end
  if found[1] ~= acquisition then return nil end
  return redis.pcall('HEXISTS', lock, field_of(lock, record)) == 1 and found[2] or nil
end

-- Whether the time of a writer is over, while its owner reads on. A writer of Redisson's has no record either, but then
-- its owner has none that is a hash.
local function is_over(lock, field)
  if redis.pcall('EXISTS', record_of(lock, field, 1)) ~= 0 then return false end
  return redis.pcall('TYPE', record_of(lock, owner_of(field), 1)).ok == 'hash'
end

-- Milliseconds that a hold has left; those of the lock if that is not known, as for a writer of Redisson's.
local function left_of(lock, field, count)
  local most = -2
  for number = 1, count do
    local left = redis.pcall('PTTL', record_of(lock, field, number))
    most = math.max(most, type(left) == 'number' and left or redis.call('PTTL', lock))
  end
  if most < 0 and writes(field) and not is_over(lock, field) then return redis.call('PTTL', lock) end
  return math.max(0, most)
end

-- Some holds may be no more: whether any is left. The lock lives as long as the longest of those.
local function settle(lock)
  local fields, longest = redis.call('HGETALL', lock), 0
  for place = 1, #fields, 2 do
    local count = tonumber(fields[place + 1]) -- The mode is no number.
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

-- A writer whose time is over keeps nobody out any longer: whether there was one.
local function drop_expired_writer(lock)
  if redis.call('HGET', lock, 'mode') ~= 'write' then return false end
  for _, field in ipairs(redis.call('HGETALL', lock)) do -- While somebody writes there are few; counts are none.
    if writes(field) and is_over(lock, field) then
      redis.call('HDEL', lock, field)
      redis.call('HSET', lock, 'mode', 'read')
      return true
    end
  end
  return false
end

local FEW = 8 -- Other holds, each of which is looked at as one leaves.

-- The hold of *field* is no more: whether another is left.
local function leave(lock, field, record)
  if redis.call('HLEN', lock) == 2 then
    redis.call('DEL', lock, record)
    return false
  end
  drop_expired_writer(lock)
  local left = redis.call('PTTL', record)
  redis.call('DEL', record)
  redis.call('HDEL', lock, field)
  if writes(field) then redis.call('HSET', lock, 'mode', 'read') end
  -- Redisson may leave a hold whose time is over in a lock that lives on. Else only the longest hold shortens that.
  local others = redis.call('HLEN', lock) - 1
  return others > FEW and left < redis.call('PTTL', lock) or settle(lock)
end

-- The reply to an acquisition that does not have the hold, and its end from now on, in place of *older*: what has lost the
-- lock once gets it by no command of its own that is still on its way.
local function lost(lock, tokens, record, acquisition, memory, retention, older)
  local field, mode = field_of(lock, record), state(lock)
  local others = 0
  if mode == 'write' then
    others = 1 - redis.call('HEXISTS', lock, owner_of(field) .. ':write')
  elseif mode == 'read' and writes(field) then
    others = redis.call('HLEN', lock) - 1 - redis.call('HEXISTS', lock, owner_of(field))
  end
  return has_ended(tokens, acquisition, others > 0 and TAKEN or EXPIRED, memory, retention, older)
end
