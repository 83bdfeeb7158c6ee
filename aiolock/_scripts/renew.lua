-- renew: let the lock live longer, if it is still this acquisition's.
--
-- KEYS[1] lock
-- KEYS[2] tokens
-- ARGV[1] acquisition id
-- ARGV[2] number of this renewal
-- ARGV[3] lease, milliseconds
-- ARGV[4] token retention, milliseconds
-- ARGV[5] memory of ended acquisitions, milliseconds
--
-- Reply {GRANTED, token, ms left}  {LOST, why, 0}
--
-- Twice: a renewal sets a TTL, never adds to one, never shortens one and never creates a key; only a later
-- number does so, hence a call that arrives late or again changes nothing. The reply tells the TTL as it is.

local last = if_held_by(ARGV[1], KEYS[1], 'aiolock:renewal')
if not last then return lost(KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[5]), ARGV[4]) end
if tonumber(ARGV[2]) > tonumber(last) then
  redis.call('PEXPIRE', KEYS[2], ARGV[4]) -- First: a server out of memory refuses a first write that takes memory.
  redis.call('HSET', KEYS[1], 'aiolock:renewal', ARGV[2])
  lengthen(KEYS[1], tonumber(ARGV[3]))
else
  write_again(KEYS[1])
end
return {GRANTED, tonumber(redis.call('HGET', KEYS[1], 'aiolock:token')), redis.call('PTTL', KEYS[1])}
