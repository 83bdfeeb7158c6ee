-- mark: leave a mark next to a lock, for its waiters, or remove it.
--
-- KEYS[1] mark
-- ARGV[1] acquisition id, of the hold that leaves it
-- ARGV[2] text
-- ARGV[3] time to live, milliseconds; 0 removes the mark if it is of that hold
--
-- Reply {1}
--
-- Twice: it sets the same text, or removes a mark that is gone. A call that arrives late leaves a mark of a past hold
-- for the time to live; that misleads readers of the mark, and has no other effect.

if ARGV[3] ~= '0' then
  redis.call('HSET', KEYS[1], 'of', ARGV[1], 'text', ARGV[2])
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
elseif redis.call('HGET', KEYS[1], 'of') == ARGV[1] then
  redis.call('DEL', KEYS[1])
end
return {1}
