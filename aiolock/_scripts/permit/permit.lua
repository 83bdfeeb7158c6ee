-- permit: the common part of the scripts of a semaphore, whose permits expire; it is put in front of each of them.
--
-- A semaphore is in Redisson's layout:
--   count    a string: the number of available permits
--   permits  a sorted set of the acquired permits, scored by their expiry, in milliseconds
-- A permit of aiolock is called ID#NUMBER there, after its acquisition, which is OWNER#NUMBER; Redisson's have 16 bytes.
-- Times are the server's. A permit that has expired is available; the next acquire puts it back.
--
-- Waiting clients stand in a line, each with the first of its tasks. The line is in the set of tokens, scored below zero:
--   turn NUMBER ID  an acquisition that waits for NUMBER permits, scored by its arrival, in microseconds
--   next            the time by which the first in line has to ask again, in milliseconds; later it loses its place
--   overtaken       the number of permits that others were granted before the first in line
-- The permits that the first in line waits for are kept for it: others get only further ones. But if both want a single
-- permit, a few may overtake it, so that a client can hand a permit to its own next task.
--
-- A waiting client gives no sign of life unless it is asked: when the permits that are kept for it could go to another,
-- `next` is set and all waiters are told the number of available permits. From then on the first in line asks every
-- HEARTBEAT. All others leave the line at that moment. A live client gets the message, asks, and has the place of its
-- arrival again, so that any number of dead clients costs one SILENCE.
--
-- The line has no key of its own: a script that finds only some of its keys does not run while their slot moves.

-- One acquire puts back no more expired permits, in addition to those that it wants.
local MOST_BACK = 128
local HEARTBEAT, SILENCE = 250, 700
-- The permits that a client hands to its own tasks in a row.
local MOST_OVERTAKEN = 16
-- One command skips no more silent waiters, because the server runs nothing else meanwhile.
local MOST_PASSED = 64
-- Added to the scores, so that these ranges differ from each other, and from the marks of other kinds of the same name.
local LINE, OVERTAKEN, NEXT = -7000000000000000, -200000000000000, -100000000000000

local function place(acquisition, number)
  return 'turn ' .. number .. ' ' .. acquisition
end

-- The first in line, and the number of permits that it wants; nil if the line is empty.
local function first_in_line(tokens)
  local first = redis.call('ZRANGEBYSCORE', tokens, '-inf', LINE_ENDS, 'LIMIT', 0, 1)[1]
  if not first then return nil end
  return first, tonumber(string.match(first, '^turn (%d+) '))
end

-- Remove *waiter* from the line; returns whether it was the first.
local function leave_line(tokens, waiter)
  local first = first_in_line(tokens)
  redis.call('ZREM', tokens, waiter)
  if first ~= waiter then return false end
  redis.call('ZREM', tokens, 'next', 'overtaken')
  return true
end

local function permit(acquisition, number)
  return acquisition .. '#' .. number
end

-- The expiry of *acquisition*'s permits; nil if it has none, or the key is no sorted set.
local function expiry(permits, acquisition)
  local score = redis.pcall('ZSCORE', permits, permit(acquisition, 1))
  if type(score) == 'table' then
    if redis.call('TYPE', permits).ok == 'zset' then redis.call('ZSCORE', permits, permit(acquisition, 1)) end
    return nil
  end
  return score and tonumber(score)
end

-- The number of available permits; nil if no number is set, or the key has something else.
local function available_of(count)
  local _, available = counter(count)
  return available
end

-- Whether the keys belong to something else, and must not be touched.
local function is_foreign(count, permits)
  local others = redis.call('TYPE', permits).ok
  return not counter(count) or others ~= 'none' and others ~= 'zset'
end

-- Remove the permits of *acquisition* from the acquired ones; returns their number. The first may be gone without the
-- others: Redisson puts single permits back that have expired by its own clock.
local function take_out(permits, acquisition, number)
  local taken = 0
  if redis.call('TYPE', permits).ok ~= 'zset' then return 0 end
  for i = 1, number do taken = taken + redis.call('ZREM', permits, permit(acquisition, i)) end
  return taken
end

-- Make *number* more permits available, if a number of permits is set.
local function put_back(count, number)
  if number ~= 0 and available_of(count) then redis.call('INCRBY', count, number) end
end

-- Publish the number of available permits to all waiters, as Redisson does; returns the number of receivers. Numbers
-- below zero are not published, because Redisson's listeners fail on them.
local function announce(count, channel, publish)
  local available = available_of(count) or 0
  return available < 0 and 0 or redis.call(publish, channel, available)
end

-- Tell all waiters to ask again, because *number* permits will be available sooner than they know. Redisson's waiters ask
-- only at a message of more than zero, and only as many of them as it says.
local function tell_to_ask(count, number, channel, publish)
  redis.call(publish, channel, math.max(number, available_of(count) or 0))
end

-- End an acquisition that has no permits; returns the reply. Its end is remembered in place of *others*.
local function end_as_lost(tokens, acquisition, memory, retention, others)
  return end_as(tokens, acquisition, EXPIRED, memory, retention, others)
end

