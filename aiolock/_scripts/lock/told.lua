-- told: if the lock was freed and noted, this tells all waiters, and that is all; it is put in front of the part that
-- handles all other cases.

if is_noted then return {GRANTED, redis.call(ARGV[7], ARGV[6], '0'), 0} end

