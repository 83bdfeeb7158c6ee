-- tell_waiters: answers after a message to all waiters, if the lock was freed, the mark was moved, and the line is empty.
-- It is put in front of what handles all other cases.

if is_noted and not redis.call('ZRANGE', KEYS[2], '-inf', '(0', 'BYSCORE', 'LIMIT', 0, 1)[1] then
  return {APPLIED, redis.call(ARGV[7], ARGV[6], '0'), 0}
end

