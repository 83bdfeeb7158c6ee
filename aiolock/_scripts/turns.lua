-- turns: what the scripts share by which one who waits keeps others from overtaking, while it goes on asking; it is put in
-- front of each of them.
--
-- Who is next is in the set of tokens:
--   turn ID  scored below zero, by the time until which it is next, in milliseconds
-- There is no key for that, nor for anything else that is not there while something is granted: a script that finds only
-- some of its keys does not run while their slot moves to another server.

local function milliseconds()
  return math.floor(microseconds() / 1000)
end

-- Who is next, and for how many milliseconds; nil if nobody keeps others from overtaking.
local function turn(tokens, now)
  local first = redis.call('ZRANGE', tokens, 0, 0, 'WITHSCORES')
  if not first[1] or tonumber(first[2]) >= 0 then return nil end
  if -tonumber(first[2]) <= now then
    redis.call('ZREM', tokens, first[1])
    return nil
  end
  return string.sub(first[1], 6), -tonumber(first[2]) - now
end

local function take_turn(tokens, acquisition, ends, retention)
  redis.call('ZADD', tokens, -ends, 'turn ' .. acquisition)
  redis.call('PEXPIRE', tokens, retention)
end

-- Whether it was the turn of *acquisition*, which is over.
local function end_turn(tokens, acquisition)
  return redis.call('ZREM', tokens, 'turn ' .. acquisition) == 1
end

