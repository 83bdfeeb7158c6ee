-- acquire: grant the lock to an owner whose turn it is, or put the acquisition into the line. In front of it,
-- grant_if_free.lua answers if the lock is free and no other acquisition stands before it in line.
--
-- KEYS[1] lock
-- KEYS[2] tokens
-- ARGV[1] owner
-- ARGV[2] acquisition id
-- ARGV[3] step
-- ARGV[4] hold count that the owner will have
-- ARGV[5] lease, milliseconds
-- ARGV[6] token retention, milliseconds
-- ARGV[7] memory of ended acquisitions, milliseconds
-- ARGV[8] 1 if it waits when it is refused, else 0
-- ARGV[9] time of its arrival in the line, from an earlier refusal, in microseconds; 0 for the first try
--
-- Reply {GRANTED, token, ms left, ms after which a waiter asks again, 1 if the next in line is of the same client else 0}
--       {REFUSED, time of arrival, ms after which it asks again, 1, 1 if the first in line is of the same client else 0}
--       {REFUSED, 0, ms} if it does not wait  {LOST, why, 0}  {STALE, 0, 0}  {NOT_A_LOCK, 0, 0}
--
-- Twice: the id finds its own grant, or its own place in line. An id that was released or given up is STALE: a call that
-- arrives late grants nothing, and joins no line. Everything else is as in acquire of a plain lock.
--
-- Of the waiting tasks of one client only the first asks again. So tickets of the same client that stand before it belong
-- to no task any more.

local owner, acquisition, step, holds = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local lease, retention, arrived = tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[9])
local client = client_of(acquisition)

-- Whether it stands in line only now.
local function stand_in_line()
  return redis.call('ZADD', KEYS[2], 'NX', TICKETS + arrived, 'ticket ' .. acquisition) == 1
end

-- Whether the first in line is of the same client.
local function leads()
  local first = first_in_line(KEYS[2])
  return first and client_of(first) == client and 1 or 0
end

local kind, ttl = state(KEYS[1])
if kind == 'held' or holds > 1 then
  local granted = again(KEYS[1], KEYS[2], owner, acquisition, step, holds, lease, retention)
  if granted then return {granted[1], granted[2], granted[3], HEARTBEAT, leads()} end
end

if holds > 1 then return end_as_lost(KEYS[1], KEYS[2], acquisition, tonumber(ARGV[7]), retention, '') end
if kind == 'foreign' then return {NOT_A_LOCK, 0, 0} end
local scores = redis.call('ZMSCORE', KEYS[2], acquisition, 'token', "plain's turn")
if scores[1] then return {STALE, 0, 0} end

local time = microseconds()
local now, soon = math.floor(time / 1000), HEARTBEAT
if kind == 'held' then
  if ARGV[8] == '0' then return {REFUSED, 0, ttl} end
  soon = math.min(soon, ttl)
else
  if arrived > 0 then stand_in_line() end
  local first = next_in_line(KEYS[2], now, arrived > 0 and client, acquisition)
  local turn = left_of_mark(KEYS[2], "plain's turn", scores[3], PLAIN + now, TURN)
  if turn > 0 then
    soon = turn
  elseif first == nil or first == acquisition then
    if first then leave_line(KEYS[2], acquisition) end
    if scores[3] then redis.call('ZREM', KEYS[2], "plain's turn") end
    local granted = grant(time, nil, scores[2], 'aiolock:fair', '1')
    return {granted[1], granted[2], granted[3], HEARTBEAT, leads()}
  elseif not first then
    soon = 0
  end
end
if ARGV[8] == '0' then return {REFUSED, 0, soon} end
local is_new = arrived == 0
if is_new then
  -- The clock may have been set back.
  local last = redis.call(
    'ZRANGE', KEYS[2], LAST_TICKET, FIRST_TICKET, 'BYSCORE', 'REV', 'LIMIT', 0, 1, 'WITHSCORES')[2]
  arrived = last and math.max(time, tonumber(last) - TICKETS + 1) or time
end
-- The first copy of the call may have arrived before.
if not stand_in_line() and is_new then
  arrived = tonumber(redis.call('ZSCORE', KEYS[2], 'ticket ' .. acquisition)) - TICKETS
end
-- A line that is never empty would keep the marks of all clients that ever stood in it: a new mark takes the place of some.
local is_added = redis.call('ZADD', KEYS[2], ALIVE + now + SILENCE, 'alive ' .. client) == 1
if is_added then remove_some(KEYS[2], ALIVE, ALIVE + now) end
redis.call('PEXPIRE', KEYS[2], retention)
return {REFUSED, arrived, soon, 1, leads()}
