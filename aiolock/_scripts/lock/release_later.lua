-- release_later: give the last hold back, and leave something in the lock's place that nobody holds, for a while.
--
-- KEYS[1] lock
-- KEYS[2] tokens
-- ARGV[1] acquisition id
-- ARGV[2] token retention, milliseconds; no shorter than what is left stays
-- ARGV[3] memory of ended acquisitions, milliseconds
-- ARGV[4] ids of ended acquisitions that may be forgotten, for no command of them can be late, with spaces between
-- ARGV[5] how long it stays, milliseconds
-- ARGV[6] its one field, which is no owner's
-- ARGV[7] the value of that
-- ARGV[8] channel
-- ARGV[9] PUBLISH or SPUBLISH
--
-- Reply {GRANTED, receivers of the unlock message, 0}  {LOST, why, 0}
--
-- The message has those who wait ask again: they learn how long it stays, which may be less than the lease was.
--
-- Twice: as release. What stays is nobody's, so the second call finds the acquisition ended, and does not put it off. A
-- late call for an earlier acquisition finds another id in the lock, or none, and changes nothing.

local acquisition = ARGV[1]

if if_held_by(acquisition, KEYS[1], 'aiolock:step') then
  redis.call('DEL', KEYS[1])
  remember(KEYS[2], FREED, acquisition, tonumber(ARGV[3]), ARGV[2], ARGV[4])
  redis.call('HSET', KEYS[1], ARGV[6], ARGV[7])
  redis.call('PEXPIRE', KEYS[1], ARGV[5])
  return {GRANTED, redis.call(ARGV[9], ARGV[8], '0'), 0}
end

if ending(KEYS[2], acquisition) == FREED then return {GRANTED, 0, 0} end
return lost(KEYS[1], KEYS[2], acquisition, tonumber(ARGV[3]), ARGV[2], ARGV[4])
