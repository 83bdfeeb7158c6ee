-- acquire: let an owner read or write, or report the longest time for which others keep it out. In front of it,
-- grant_if_free.lua answers if the lock has no holder and no other acquisition goes first.
--
-- KEYS[1] lock
-- KEYS[2] tokens
-- KEYS[3] record of the hold, whose name says whether it reads or writes
-- ARGV[1] owner
-- ARGV[2] acquisition id
-- ARGV[3] step
-- ARGV[4] hold count that the owner will have
-- ARGV[5] lease, milliseconds
-- ARGV[6] token retention, milliseconds
-- ARGV[7] memory of ended acquisitions, milliseconds
-- ARGV[8] milliseconds for which others may not overtake it if it is refused; 0 if it does not wait
-- ARGV[9] channel
-- ARGV[10] PUBLISH or SPUBLISH
--
-- Reply {GRANTED, token, ms left, ms after which others may be granted}  {LOST, why, 0}  {STALE, 0, 0}
--       {NOT_A_LOCK, 0, 0}  {REFUSED, 0, ms after which it may be granted, 1 if others may not overtake it, or nothing}
--
-- Twice: the id finds its own grant and answers with the same token; the count is set, never added to, and only by a
-- later step, so neither a re-sent nor an overtaken call changes it or the TTL. An id that was released or given up is
-- STALE: a call that arrives late grants nothing. A grant only lengthens a TTL.
--
-- Readers and writers take turns: a writer that has to wait for readers lets no further readers in before it, and a
-- reader that has to wait for a writer lets no other writer in before it. Once other readers are in, it has SOON to
-- follow them: otherwise writers would wait for a dead reader while other readers come and go.

-- Milliseconds for events that are under way: a reader that is next follows other readers; an earlier hold ends.
local SOON = 100

local owner, acquisition, step, holds = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local lease, waits = tonumber(ARGV[5]), tonumber(ARGV[8])
local kind = field == owner and 'read' or 'write'

local mode, ttl = state(KEYS[1])
if mode ~= 'free' or holds > 1 then
  local last = if_held_by(acquisition, KEYS[1], KEYS[3], 'step')
  if last then
    if step > tonumber(last) then
      redis.call('PEXPIRE', KEYS[2], ARGV[6])
      redis.call('HSET', KEYS[1], field, holds)
      redis.call('HSET', KEYS[3], 'step', step)
      lengthen(KEYS[3], lease)
      lengthen(KEYS[1], lease)
    else
      write_again(KEYS[3])
    end
    return {GRANTED, tonumber(redis.call('HGET', KEYS[3], 'token')), redis.call('PTTL', KEYS[3]), 0}
  end
end

if holds > 1 then return end_as_lost(KEYS[1], KEYS[2], KEYS[3], acquisition, tonumber(ARGV[7]), ARGV[6], '') end
if mode == 'foreign' then return {NOT_A_LOCK, 0, 0} end
local scores = redis.call('ZMSCORE', KEYS[2], acquisition, 'token')
if scores[1] then return {STALE, 0, 0} end

local time = microseconds()
local now = math.floor(time / 1000)
local mine = kind .. ' ' .. acquisition
local first, keeps = turn(KEYS[2], now)
if mode == 'write' and drop_expired_writer(KEYS[1]) then
  mode = 'read'
  -- No message has come about the expired writer.
  redis.call(ARGV[10], ARGV[9], '1')
end
local inside = mode == 'write' and kind == 'read' and redis.call('HEXISTS', KEYS[1], owner .. ':write') == 1

-- Redisson may have left a lock that lives longer than its readers.
if kind == 'write' and mode == 'read' then
  mode, ttl = settle(KEYS[1]) and 'read' or 'free', math.max(0, redis.call('PTTL', KEYS[1]))
end
if kind == 'write' and mode ~= 'write' and first and string.sub(first, 1, 5) == 'read ' then
  -- Readers may come in meanwhile, without a message.
  keeps = math.min(keeps, SOON)
end
if mode ~= 'free' and not inside and (kind == 'write' or mode == 'write') then
  if waits > 0 and mode ~= kind and (not first or first == mine) then
    take_turn(KEYS[2], mine, now + waits, ARGV[6])
    return {REFUSED, 0, math.min(ttl, waits / 2), 1}
  end
  -- The next one may have died; then no message will come.
  return {REFUSED, 0, math.min(ttl, keeps or ttl)}
end
if first and first ~= mine and (kind == 'write' or string.sub(first, 1, 6) == 'write ') then
  return {REFUSED, 0, keeps}
end
if mode ~= 'free' and redis.call('HEXISTS', KEYS[1], field) == 1 then
  local left = redis.call('PTTL', KEYS[3])
  if left > 0 then return {REFUSED, 0, math.min(left, SOON)} end
end

local token, told = next_token(KEYS[2], scores[2], time, ARGV[6])
if mode == 'free' then
  redis.call('HSET', KEYS[1], 'mode', kind, field, holds)
else
  redis.call('HSET', KEYS[1], field, holds)
end
redis.call('HSET', KEYS[3], 'acquisition', acquisition, 'token', told, 'step', step, 'renewal', 0)
redis.call('PEXPIRE', KEYS[3], lease)
if ttl < lease then redis.call('PEXPIRE', KEYS[1], lease) end
if first == mine then
  end_turn(KEYS[2], mine)
  -- Other readers may have got no message.
  if kind == 'read' then redis.call(ARGV[10], ARGV[9], '1') end
elseif first and not inside then
  -- The next one is a reader as well.
  take_turn(KEYS[2], first, now + math.min(keeps, SOON), ARGV[6])
end
return {GRANTED, token, lease, inside and math.max(ttl, lease) or 0}
