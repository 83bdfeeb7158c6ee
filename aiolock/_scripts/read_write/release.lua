-- release: release one hold, or give up an acquisition whose outcome is unknown. In front of it, release_last.lua frees
-- the lock and answers if this is its last hold.
--
-- KEYS[1] lock
-- KEYS[2] tokens
-- KEYS[3] record of the hold
-- ARGV[1] owner
-- ARGV[2] acquisition id
-- ARGV[3] step
-- ARGV[4] hold count that will be left
-- ARGV[5] token retention, milliseconds
-- ARGV[6] memory of ended acquisitions, milliseconds
-- ARGV[7] ids of ended acquisitions to forget, as none of their commands can still arrive; separated by spaces
-- ARGV[8] channel
-- ARGV[9] PUBLISH or SPUBLISH
--
-- Reply {APPLIED, receivers of the message, 0}  {LOST, why, 0}
--
-- Twice: the end of an acquisition and its kind are remembered, so the second call answers like the first, and an
-- acquire that arrives after it grants nothing. (The receivers are only a hint; a second call says 0.) A count above
-- zero is set, never subtracted from, and only by a later step. A late call for an earlier acquisition finds another id
-- in the record and frees nothing.

local owner, acquisition, step, left = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local writing = field ~= owner

-- The message for waiters, as in Redisson: '0' wakes one of its waiters, '1' all of them.
local function announce()
  return redis.call(ARGV[9], ARGV[8], writing and '1' or '0')
end

local last = if_held_by(acquisition, KEYS[1], KEYS[3], 'step')
if last and left > 0 then
  if step > tonumber(last) then
    redis.call('PEXPIRE', KEYS[2], ARGV[5])
    redis.call('HSET', KEYS[1], field, left)
    redis.call('HSET', KEYS[3], 'step', step)
  end
  return {APPLIED, 0, 0}
end
if last then
  local others = leave(KEYS[1], field, KEYS[3])
  remember(KEYS[2], FREED, acquisition, ARGV[6], ARGV[5], ARGV[7])
  return {APPLIED, (writing or not others) and announce() or 0, 0}
end

if end_turn(KEYS[2], (writing and 'write ' or 'read ') .. acquisition) then redis.call(ARGV[9], ARGV[8], '1') end
local mode = state(KEYS[1])
local is_ours = mode == 'read' or mode == 'write'
if is_ours and redis.call('HEXISTS', KEYS[1], field) == 1 and redis.call('EXISTS', KEYS[3]) == 0 then
  -- The hold had expired.
  if not leave(KEYS[1], field, KEYS[3]) or writing then announce() end
end
if ending(KEYS[2], acquisition) == FREED then return {APPLIED, 0, 0} end
return end_as_lost(KEYS[1], KEYS[2], KEYS[3], acquisition, tonumber(ARGV[6]), ARGV[5], ARGV[7])
