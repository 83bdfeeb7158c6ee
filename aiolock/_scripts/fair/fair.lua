-- fair: the common part of the scripts of a fair lock, in addition to that of all locks; it is put in front of each of them.
--
-- The lock is that of lock.lua, so that plain and fair locks of one name exclude each other. The waiters stand in a line,
-- which is kept in the set of tokens, scored below zero:
--   ticket ID     an acquisition that waits, scored by its arrival, in microseconds
--   alive CLIENT  scored by the time until which the client counts as alive, in milliseconds: the first of its waiting tasks
--                 asks again and again for all of them
--   plain         see lock.lua: if the waiters for the plain lock are due, a release tells them, and begins their turn
-- The line has no key of its own: a script that finds only some of its keys does not run while their slot moves.
--
-- A waiter loses its place if its client gives no sign of life when it is its turn, or if the server loses its data. It comes
-- back with the time of its first arrival, by the server's clock, which the server had told it.

-- Added to the times, so that the scores of all tickets are below those of clients that live, and these below all others.
local TICKETS, ALIVE, ELSE = FIRST_TICKET, LAST_TICKET, -900000000000000
-- Milliseconds of silence after which a client is skipped; with HEARTBEAT, less than a second.
local SILENCE = 700
-- Milliseconds for the waiters of the plain lock to come when it is their turn.
local TURN = 100
-- One command skips no more tickets, because the server runs nothing else meanwhile.
local MOST_PASSED = 64

-- The client of an acquisition, which is CLIENT:NUMBER.
local function client_of(acquisition)
  return string.match(acquisition, '^(.*):%d+$')
end

-- The first in line, alive or not; nil if the line is empty, and then the marks of live clients are removed.
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

-- The first in line that may be granted the lock. Tickets of silent clients are removed, and so are the tickets that the
-- client *speaking* has before its *own* one. Nil if the line is empty; false if there are more tickets to remove.
local function next_in_line(tokens, now, speaking, own)
  for _ = 1, MOST_PASSED do
    local first = first_in_line(tokens)
    if not first or first == own then return first end
    local client = client_of(first)
    if client ~= speaking then
      local mark = 'alive ' .. client
      local alive = redis.call('ZSCORE', tokens, mark)
      if left_of_mark(tokens, mark, alive, ALIVE + now, SILENCE) > 0 then return first end
    end
    leave_line(tokens, first)
  end
  return false
end
