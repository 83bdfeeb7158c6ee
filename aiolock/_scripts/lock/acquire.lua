-- acquire: grant the lock to an owner, or report the longest time for which others keep it out. In front of it,
-- grant_if_free.lua answers if the lock is free and no waiter goes first.
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
-- Reply {GRANTED, token, ms left}  {REFUSED, 0, ms left to the holder}  {LOST, why, 0}  {STALE, 0, 0}  {NOT_A_LOCK, 0, 0}
--       {REFUSED, 0, ms} if the lock is free, but waiters for the fair lock of the name go first
--       {REFUSED, 0, ms left to the holder, its acquisition id} on a server of a quorum (see refused.lua)
--
-- Twice: the id finds its own grant and answers with the same token; the count is set, never added to, and
-- only by a later step, so neither a re-sent nor an overtaken call changes it or the TTL. An id that was
-- released or given up is STALE: a call that arrives late grants nothing. A grant only lengthens the TTL.

local owner, acquisition, step, holds = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local lease, retention = tonumber(ARGV[5]), ARGV[6]

local kind, ttl = state(KEYS[1])
if kind == 'held' or holds > 1 then
  local granted = again(KEYS[1], KEYS[2], owner, acquisition, step, holds, lease, retention)
  if granted then return granted end
end

if holds > 1 then return end_as_lost(KEYS[1], KEYS[2], acquisition, tonumber(ARGV[7]), retention, '') end
if kind == 'foreign' then return {NOT_A_LOCK, 0, 0} end
local scores = redis.call('ZMSCORE', KEYS[2], acquisition, 'token', 'plain', "plain's turn")
if scores[1] then return {STALE, 0, 0} end
if kind == 'held' then
  if redis.call('HEXISTS', KEYS[1], 'aiolock:fair') == 1 then
    redis.call('ZADD', KEYS[2], 'NX', PLAIN + math.floor(microseconds() / 1000) + LINE_FIRST, 'plain')
    redis.call('PEXPIRE', KEYS[2], retention)
  end
  return refused(KEYS[1], ttl)
end
if scores[3] then
  local due = left_of_mark(KEYS[2], 'plain', scores[3], PLAIN + math.floor(microseconds() / 1000), LINE_FIRST)
  if due > 0 and redis.call('ZRANGEBYSCORE', KEYS[2], FIRST_TICKET, LAST_TICKET, 'LIMIT', 0, 1)[1] then
    return {REFUSED, 0, due}
  end
end
if scores[3] or scores[4] then redis.call('ZREM', KEYS[2], 'plain', "plain's turn") end
return grant(microseconds(), nil, scores[2])
