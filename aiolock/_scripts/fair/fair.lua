-- fair: what the scripts of a fair lock share, beside what those of a lock do; it is put in front of each of them.
--
-- The lock is that of lock.lua, so that plain and fair locks of one name exclude each other. Who waits is in a line, which
-- is kept in the set of tokens, scored below zero:
--   ticket ID     scored by when it arrived, in microseconds
--   alive CLIENT  scored by the time until which its client is taken to live, in milliseconds: the first of the tasks that
--                 wait there asks again and again for all of them
--   plain         see lock.lua: a release that finds them due tells those who wait for the plain lock, and it is their turn
-- There is no key for that: a script that finds only some of its keys does not run while their slot moves to another server.
--
-- Whoever lost its place, because its client gave no sign of life when it was its turn, or because the server forgot, comes
-- back with the time at which it first arrived. That is by the clock of the server, which told it.

-- Added to the times, so that all tickets lie below whoever lives, and these below all else.
local TICKETS, ALIVE, ELSE = -4000000000000000, -1000000000000000, -900000000000000
local HEARTBEAT = 250 -- Milliseconds after which a client asks again.
local SILENCE = 700 -- Milliseconds after which one that has not is passed over. Together they stay below a second.
local TURN = 100 -- Milliseconds that the plain ones have to come, when it is their turn.
local MOST_PASSED = 64 -- Tickets that one command passes over, while all others wait.

-- The client of an acquisition, which is CLIENT:NUMBER.
local function client_of(acquisition)
  return string.match(acquisition, '^(.*):%d+$')
end

-- The first in line, living or not; nil if nobody waits. Then it does not matter any more who lives.
local function first_in_line(tokens)
  local first = redis.call('ZRANGE', tokens, TICKETS, ELSE, 'BYSCORE', 'LIMIT', 0, 1)[1]
  if not first then return nil end
  if string.sub(first, 1, 7) == 'ticket ' then return string.sub(first, 8) end
  redis.call('ZREMRANGEBYSCORE', tokens, ALIVE, ELSE)
  return nil
end

local function leave_line(tokens, acquisition)
  return redis.call('ZREM', tokens, 'ticket ' .. acquisition) == 1
end

-- The first in line that may be granted the lock: those of clients that give no sign of life are passed over, and those of
-- the client *speaking* before its *own* one. Nil if nobody waits; false if there are more to pass over.
local function next_in_line(tokens, now, speaking, own)
  for _ = 1, MOST_PASSED do
    local first = first_in_line(tokens)
    if not first or first == own then return first end
    local client = client_of(first)
    if client ~= speaking then
      local alive = redis.call('ZSCORE', tokens, 'alive ' .. client)
      if alive and tonumber(alive) - ALIVE > now then return first end
    end
    leave_line(tokens, first)
  end
  return false
end
