-- turns: the common part by which a waiter keeps others from overtaking it, as long as it goes on asking; it is put in
-- front of each script that grants or releases a lock.
--
-- The next one is in the set of tokens:
--   turn ID  scored below zero, by the time until which it is the next one, in milliseconds
-- The set may also have marks that locks and fair locks of the same name left, with much lower scores (see lock.lua).
-- There is no key for the turn, nor for anything else that may be missing at a grant: a script that finds only some of
-- its keys does not run while their slot moves to another server.

-- Lower scores are no turns.
local FIRST_TURN = '-10000000000000'
-- Milliseconds of the longest turn, see _core/commands.py.
local LONGEST_TURN = 2000

-- The next one, and the milliseconds of its turn; nil if no waiter keeps others from overtaking. If more than those of the
-- longest turn are left, the clock was set back: the turn ends when the longest one would.
local function turn(tokens, now)
  local first = redis.call('ZRANGEBYSCORE', tokens, FIRST_TURN, '(0', 'WITHSCORES', 'LIMIT', 0, 1)
  if not first[1] then return nil end
  local left = -tonumber(first[2]) - now
  if left <= 0 then
    redis.call('ZREM', tokens, first[1])
    return nil
  end
  if left > LONGEST_TURN then
    left = LONGEST_TURN
    redis.call('ZADD', tokens, -now - left, first[1])
  end
  return string.sub(first[1], 6), left
end

local function take_turn(tokens, acquisition, ends, retention)
  redis.call('ZADD', tokens, -ends, 'turn ' .. acquisition)
  redis.call('PEXPIRE', tokens, retention)
end

-- End the turn of *acquisition*; returns whether it was its turn.
local function end_turn(tokens, acquisition)
  return redis.call('ZREM', tokens, 'turn ' .. acquisition) == 1
end

