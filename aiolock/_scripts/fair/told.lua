-- told: if the lock was freed and noted, and its line is empty, this tells all waiters, and that is all; it is put in front
-- of the part that handles all other cases.

if is_noted and not redis.call('ZRANGE', KEYS[2], '-inf', '(0', 'BYSCORE', 'LIMIT', 0, 1)[1] then
  return {GRANTED, redis.call(ARGV[7], ARGV[6], '0'), 0}
end

