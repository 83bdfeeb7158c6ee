-- raise_read_write: the same for a hold of a read-write lock.
--
-- KEYS[1] lock
-- KEYS[2] tokens
-- KEYS[3] record of the hold
-- ARGV[1] token
-- ARGV[2] acquisition id
-- ARGV[3] token retention, milliseconds
--
-- Reply {GRANTED, 0, 0}  {LOST, 0, 0} when this server has not granted it, or not any more
--
-- Twice: a token is only ever raised, and only that of the acquisition which has the hold.

if not if_held_by(ARGV[2], KEYS[1], KEYS[3], 'step') then return {LOST, 0, 0} end
raise(KEYS[2], ARGV[1], ARGV[3])
redis.call('HSET', KEYS[3], 'token', ARGV[1])
return {GRANTED, 0, 0}
