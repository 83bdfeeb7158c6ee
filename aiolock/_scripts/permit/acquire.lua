-- acquire: grant permits to an acquisition, all that it wants or none. In front of it, grant_if_free.lua answers if the
-- permits are available and nothing waits for them.
--
-- KEYS[1] count
-- KEYS[2] permits
-- KEYS[3] tokens
-- ARGV[1] acquisition id
-- ARGV[2] lease, milliseconds
-- ARGV[3] token retention, milliseconds
-- ARGV[4] number of permits
-- ARGV[5] number of permits to set if none is set yet; '' if it is not known
-- ARGV[6] 1 if it joins the line when it is refused, else 0
-- ARGV[7] time of its arrival in the line, from an earlier refusal, in microseconds; 0 for the first try
-- ARGV[8] channel
-- ARGV[9] PUBLISH or SPUBLISH
--
-- Reply {GRANTED, token, ms left, ms after which others may be granted, permits that are left}  {STALE, 0, 0}
--       {NOT_A_LOCK, 0, 0}
--       {REFUSED, time of arrival, ms after which it may be granted, 1 if it is in the line, or nothing}
--
-- Twice: the id finds its own grant, and nothing is counted again; the reply has a later token, and the reply with the
-- earlier token did not reach its client. A refused call finds its own place in line. An id that was released or given
-- up is STALE: a call that arrives late grants nothing, and joins no line.

local acquisition, lease, wanted = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[4])

-- Milliseconds until the next permit expires.
local function next_expiry(now)
  local first = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2]
  return first and math.min(LONGEST_PROBE, math.max(0, tonumber(first) - now)) or LONGEST_PROBE
end

-- The reply to a grant that leaves *left* permits.
local function granted(token, ms, left, now)
  return {GRANTED, token, ms, left > 0 and 0 or next_expiry(now), math.max(0, left)}
end

local time = microseconds()
local now = math.floor(time / 1000)
local expires = expiry(KEYS[2], acquisition)
if expires and expires > now then
  local token = next_token(KEYS[3], redis.call('ZSCORE', KEYS[3], 'token'), time, ARGV[3])
  return granted(token, expires - now, available_of(KEYS[1]) or 0, now)
end
if is_foreign(KEYS[1], KEYS[2]) then return {NOT_A_LOCK, 0, 0} end
if ending(KEYS[3], acquisition) then return {STALE, 0, 0} end
-- The client never saw that grant.
if expires then put_back(KEYS[1], take_out(KEYS[2], acquisition, wanted)) end

local available = available_of(KEYS[1])
local expired = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'LIMIT', 0, MOST_BACK + wanted)
for _, member in ipairs(expired) do redis.call('ZREM', KEYS[2], member) end
local others_look = false
if not available and ARGV[5] ~= '' then
  available = tonumber(ARGV[5]) - redis.call('ZCARD', KEYS[2])
  redis.call('SET', KEYS[1], available)
  others_look = true
elseif available and #expired > 0 then
  available = redis.call('INCRBY', KEYS[1], #expired)
end
available = available or 0

local me, total = place(acquisition, wanted), available + redis.call('ZCARD', KEYS[2])

-- The first in line and its number of permits. Waiters that did not ask in time, or want too many, lose their place.
local function pass_over()
  for _ = 1, MOST_PASSED do
    local first, wants = first_in_line(KEYS[3])
    if not first or first == me then return first, wants end
    local asks_until = redis.call('ZSCORE', KEYS[3], 'next')
    local is_silent = asks_until and left_of_mark(KEYS[3], 'next', asks_until, NEXT + now, SILENCE) <= 0
    if wants <= total and not is_silent then return first, wants end
    leave_line(KEYS[3], first)
    others_look = true
  end
  return first_in_line(KEYS[3])
end

local first, wants = pass_over()
local kept = first and first ~= me and wants or 0
local overtaken = tonumber(redis.call('ZSCORE', KEYS[3], 'overtaken') or OVERTAKEN) - OVERTAKEN
local overtakes = kept == 1 and wanted == 1 and available == 1 and overtaken < MOST_OVERTAKEN

-- Put *me* into the line, in the order of arrival; returns the time of arrival.
local function stand_in_line(arrived)
  if arrived == 0 then
    -- The clock may have been set back.
    local last = redis.call('ZRANGE', KEYS[3], LINE_ENDS, '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, 1, 'WITHSCORES')[2]
    arrived = last and math.max(time, tonumber(last) - LINE + 1) or time
  end
  redis.call('ZADD', KEYS[3], 'NX', LINE + arrived, me)
  redis.call('PEXPIRE', KEYS[3], ARGV[3])
  return tonumber(redis.call('ZSCORE', KEYS[3], me)) - LINE
end

-- Ask for a sign of life: the first in line keeps its place meanwhile, all behind it leave the line and come back.
local function begin_contest()
  redis.call('ZREMRANGEBYSCORE', KEYS[3], '(' .. redis.call('ZSCORE', KEYS[3], first), LINE_ENDS)
  redis.call('ZADD', KEYS[3], NEXT + now + SILENCE, 'next')
end

-- Milliseconds after which it may be granted the permits that are kept for the first in line: more for a later place.
local function contest_ends()
  local score = redis.call('ZSCORE', KEYS[3], me)
  local before = score and redis.call('ZCOUNT', KEYS[3], '-inf', '(' .. score) or 1
  return tonumber(redis.call('ZSCORE', KEYS[3], 'next')) - NEXT - now + (before - 1) * SILENCE
end

-- Milliseconds after which the first in line asks again; less while permits are kept from others for it.
local function stand_first()
  if available > 0 and redis.call('ZSCORE', KEYS[3], 'next') then
    redis.call('ZADD', KEYS[3], NEXT + now + SILENCE, 'next')
    return HEARTBEAT
  end
  redis.call('ZREM', KEYS[3], 'next')
  return LONGEST_PROBE
end

if available - kept < wanted and not overtakes then
  local contests = kept > 0 and available >= wanted
  local begins = contests and not redis.call('ZSCORE', KEYS[3], 'next')
  if begins then begin_contest() end
  -- Nothing waits in line for more permits than there are.
  local waits = ARGV[6] == '1' and wanted <= total
  local arrived = tonumber(ARGV[7])
  if waits then
    arrived = stand_in_line(arrived)
  elseif wanted > total then
    others_look = leave_line(KEYS[3], me) or others_look
  end
  if begins or others_look and available > 0 then announce(KEYS[1], ARGV[8], ARGV[9]) end
  local soon = next_expiry(now)
  if contests then
    soon = math.min(soon, contest_ends())
  elseif kept == 0 and waits then
    soon = math.min(soon, stand_first())
  end
  return {REFUSED, arrived, soon, waits and 1 or nil}
end

local token = next_token(KEYS[3], redis.call('ZSCORE', KEYS[3], 'token'), time, ARGV[3])
redis.call('DECRBY', KEYS[1], wanted)
for i = 1, wanted do redis.call('ZADD', KEYS[2], now + lease, permit(acquisition, i)) end
local ttl = redis.call('PTTL', KEYS[1])
if ttl > 0 then redis.call('PEXPIRE', KEYS[2], ttl) end
local left = available - wanted
if overtakes then redis.call('ZADD', KEYS[3], OVERTAKEN + overtaken + 1, 'overtaken') end
local was_first = leave_line(KEYS[3], me)
if left > 0 and (others_look or was_first) then announce(KEYS[1], ARGV[8], ARGV[9]) end
return granted(token, lease, left, now)
