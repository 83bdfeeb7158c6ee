-- latch: the common part of the scripts of a count-down latch; it is put in front of each of them.
--
-- A latch is in Redisson's layout: one number, which is left to count down. At zero there is no key.

-- The texts that are published.
local OPEN, CLOSED = '0', '1'

-- Remember the request *id*, whose change is made, or refused, now. If it is remembered already, this is a copy: then returns
-- the kind of its end, and the caller makes no change. The end of a copy may be old: nothing old is removed before it is read.
local function end_of_copy(tokens, how, id, memory, retention, others)
  local time, replaced = redis.call('TIME'), forget(tokens, others)
  if redis.call('ZADD', tokens, 'NX', score_of(time, how), id) == 0 then return redis.call('ZSCORE', tokens, id) % 10 end
  remove_old(tokens, time, memory, replaced)
  redis.call('PEXPIRE', tokens, retention)
end
