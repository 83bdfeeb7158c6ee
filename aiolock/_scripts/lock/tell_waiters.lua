-- tell_waiters: answers after a message to all waiters, if the lock was freed and the mark was moved. It is put in front of
-- what handles all other cases.

if is_noted then return {APPLIED, redis.call(ARGV[7], ARGV[6], '0'), 0} end

