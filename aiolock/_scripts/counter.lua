-- counter: the common part of the scripts of a primitive that is a number; it is put in front of each of them.
--
-- The number is a string, as in Redisson. Each change of it is remembered in the set of tokens, under the id of the
-- acquisition or of the request, so that it is made once even if it is sent several times. So is each refused change,
-- as EXPIRED: a late copy of it does not make the change when it has become possible. So a script answers a copy by the
-- end that it finds.

-- Milliseconds until a waiter asks again, if no message comes.
local PROBE = 5000

-- Remember a change that is made, or refused, now, by the *id* of its request. If it is remembered already, this is a copy:
-- then returns the kind of the end, and changes nothing.
local function end_of_copy(tokens, how, id, memory, retention, others)
  local score = make_room(tokens, how, memory, others, redis.call('TIME'))
  if redis.call('ZADD', tokens, 'NX', score, id) == 0 then return redis.call('ZSCORE', tokens, id) % 10 end
  redis.call('PEXPIRE', tokens, retention)
end

