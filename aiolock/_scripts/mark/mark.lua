-- mark: leave a mark beside a lock, for whoever waits for it, or take it away.
--
-- KEYS[1] mark
-- ARGV[1] acquisition id, of the hold that leaves it
-- ARGV[2] text
-- ARGV[3] time to live, milliseconds; 0 takes the mark away if it is of that hold
--
-- Reply {1}
--
-- Twice: it sets the same text, or takes away what is not there. One that arrives late leaves a mark of what is over, for
-- its time to live; that misleads who reads it, and nothing else.

if ARGV[3] ~= '0' then
  redis.call('HSET', KEYS[1], 'of', ARGV[1], 'text', ARGV[2])
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
elseif redis.call('HGET', KEYS[1], 'of') == ARGV[1] then
  redis.call('DEL', KEYS[1])
end
return {1}
