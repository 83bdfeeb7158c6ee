-- counter: the common part of the scripts of a primitive that is a number; it is put in front of each of them.
--
-- The number is a string, as in Redisson. Each change of it is remembered in the set of tokens, under the id of the
-- acquisition or of the request, so that it is made once even if it is sent several times. So is each refused change,
-- as EXPIRED: a late copy of it does not make the change when it has become possible.

local PROBE = 5000 -- Milliseconds until a waiter asks again, if no message comes.

-- Whether the key is a whole number or does not exist; and the number, if there is one.
local function counter(key)
  local value = redis.pcall('GET', key)
  if type(value) == 'table' then
    -- If the key may be a number, the user lacks the permission to read it: that error goes to the client.
    local kind = redis.call('TYPE', key).ok
    if kind == 'string' or kind == 'none' then redis.call('GET', key) end
    return false
  end
  local number = number_of(value)
  return not value or number ~= nil, number
end

-- The reply to a change that was made or refused before; nil for a new one.
local function answer_again(tokens, request)
  local ended = redis.call('ZSCORE', tokens, request)
  return ended and {ended % 10 == FREED and APPLIED or REFUSED, 0, 0}
end

-- Refuse a change; returns the reply.
local function refuse(tokens, request, memory, retention, others)
  redis.call('PEXPIRE', tokens, retention) -- First: a server out of memory refuses a first write that needs memory.
  remember(tokens, EXPIRED, request, memory, retention, others)
  return {REFUSED, 0, 0}
end
