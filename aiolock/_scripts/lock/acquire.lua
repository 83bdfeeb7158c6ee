-- acquire: grant the lock to an owner, or say how long another will have it at most.
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
--
-- Reply {GRANTED, token, ms left}  {REFUSED, 0, ms left to the holder}  {LOST, why, 0}  {STALE, 0, 0}
--       {NOT_A_LOCK, 0, 0}
--
-- Twice: the id finds its own grant and answers with the same token; the count is set, never added to, and
-- only by a later step, so neither a re-sent nor an overtaken call changes it or the TTL. An id that was
-- released or given up is STALE: a call that arrives late grants nothing. A grant only lengthens the TTL.

local owner, acquisition, step, holds = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])

local kind, ttl = state(KEYS[1])
if kind == 'held' or holds > 1 then
  local last = if_held_by(acquisition, KEYS[1], 'aiolock:step')
  if last then
    if step > tonumber(last) then
      redis.call('PEXPIRE', KEYS[2], ARGV[6]) -- First: a server out of memory refuses a first write that takes memory.
      redis.call('HSET', KEYS[1], owner, holds, 'aiolock:step', step)
      lengthen(KEYS[1], tonumber(ARGV[5]))
    else
      write_again(KEYS[1])
    end
    return {GRANTED, tonumber(redis.call('HGET', KEYS[1], 'aiolock:token')), redis.call('PTTL', KEYS[1])}
  end
end

if holds > 1 then return lost(KEYS[1], KEYS[2], acquisition, tonumber(ARGV[7]), ARGV[6], '') end
if kind == 'foreign' then return {NOT_A_LOCK, 0, 0} end
local scores = redis.call('ZMSCORE', KEYS[2], acquisition, 'token')
if scores[1] then return {STALE, 0, 0} end
if kind == 'held' then return {REFUSED, 0, ttl} end

local token = math.max(tonumber(scores[2] or 0) + 1, microseconds())
redis.call('ZADD', KEYS[2], token, 'token')
redis.call('PEXPIRE', KEYS[2], ARGV[6])
redis.call('HSET', KEYS[1], owner, holds, 'aiolock:acquisition', acquisition, 'aiolock:token', token,
  'aiolock:step', step, 'aiolock:renewal', 0)
redis.call('PEXPIRE', KEYS[1], ARGV[5])
return {GRANTED, token, tonumber(ARGV[5])}
