-- ends: the memory of ended acquisitions, for all scripts that grant something; it is put in front of each of them, behind
-- parts that may answer without it. `ending` is in late.lua; each primitive with leases has its `end_as_lost`.
--
-- The sorted set of tokens of a name has:
--   token                scored by the last token, in microseconds
--   freed CLIENT         the mark of a client, scored by the number of its last clean release (lock/release_clean.lua),
--                        which is above the scores of all ids, and below all tokens
--   ID                   an acquisition that ended lately, scored by the time of its end in milliseconds, times ten, plus
--                        the kind of the end: a hundredth of any token, so that the two never collide. A command that
--                        arrives late finds the end here. Clients name the ends for which no command can be late, and
--                        these are removed. So a name in constant use keeps the last end of each client, and the ends
--                        of recent failures.

-- One command removes no more old ends, because the server runs nothing else meanwhile.
local MOST_AT_ONCE = 16
-- An end that replaces one, or will be replaced, looks for old ends in one microsecond of this many.
local SELDOM = 16

-- Remove some members with scores from *least* to *most*, the lowest first.
local function remove_some(tokens, least, most)
  local old = redis.call('ZRANGEBYSCORE', tokens, least, most, 'LIMIT', 0, MOST_AT_ONCE)
  if old[1] then redis.call('ZREM', tokens, unpack(old)) end
end

-- Forget *others*: ends that may be forgotten, separated by spaces. Returns how many of them there were.
local function forget(tokens, others)
  if others == '' then return 0 end
  if not string.find(others, ' ', 1, true) then return redis.call('ZREM', tokens, others) end
  local number = 0
  for other in string.gmatch(others, '%S+') do number = number + redis.call('ZREM', tokens, other) end
  return number
end

-- If a new end has *replaced* no other, remove some ends that are older than *memory*, the oldest first: the set never has
-- more ends than that time brings.
local function remove_old(tokens, time, memory, replaced)
  if replaced == 0 or time[2] % SELDOM == 0 then
    remove_some(tokens, 0, (math.floor(time[1] * 1000 + time[2] / 1000) - memory) * 10)
  end
end

-- The score of an end: the time in milliseconds, and its kind.
local function score_of(time, how)
  -- The first three of the six digits of the microseconds.
  return time[1] .. string.sub('00000' .. time[2], -6, -4) .. how
end

-- Remember the end of *acquisition*, and forget *others*. Leave *others* out for an acquire: its release will replace this
-- end. If *time* is nil, the server's clock is read.
local function remember(tokens, how, acquisition, memory, retention, others, time)
  time = time or redis.call('TIME')
  remove_old(tokens, time, memory, others and forget(tokens, others) or 1)
  redis.call('ZADD', tokens, score_of(time, how), acquisition)
  redis.call('PEXPIRE', tokens, retention)
end
