-- release: give one hold back, or give up an acquisition whose outcome is unknown; wake whoever is next.
--
-- KEYS[1] lock
-- KEYS[2] tokens
-- ARGV[1] owner
-- ARGV[2] acquisition id
-- ARGV[3] step
-- ARGV[4] hold count that will be left
-- ARGV[5] token retention, milliseconds
-- ARGV[6] memory of ended acquisitions, milliseconds
-- ARGV[7] ids of ended acquisitions that may be forgotten, for no command of them can be late, with spaces between
-- ARGV[8] channel of all clients; that of one of them ends with a colon and the client
-- ARGV[9] PUBLISH or SPUBLISH
--
-- Reply {GRANTED, receivers of the message if this client is one of them else 0, 0}  {LOST, why, 0}
--
-- Twice: as release of a plain lock. Who is not in line any more leaves none.

local owner, acquisition, step, left = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])

-- Whether those who wait for the plain lock are due: from now on it is their turn, also if they do not come.
local function begin_turn_of_plain(now)
  local due = redis.call('ZSCORE', KEYS[2], 'plain')
  if not due or tonumber(due) - PLAIN > now then return false end
  redis.call('ZREM', KEYS[2], 'plain')
  redis.call('ZADD', KEYS[2], PLAIN + now + TURN, "plain's turn")
  return true
end

-- Tell the next in line, at its own client; or, if nobody stands in line, or it is their turn, those who wait for the plain
-- lock.
local function wake()
  local now = math.floor(microseconds() / 1000)
  local first = next_in_line(KEYS[2], now)
  if first == false then first = first_in_line(KEYS[2]) end
  if begin_turn_of_plain(now) or not first then return redis.call(ARGV[9], ARGV[8], '0') end
  local client = client_of(first)
  local receivers = redis.call(ARGV[9], ARGV[8] .. ':' .. client, '0')
  return client == client_of(acquisition) and receivers or 0
end

local memory = tonumber(ARGV[6])
local freed = give_back(KEYS[1], KEYS[2], owner, acquisition, step, left, memory, ARGV[5], ARGV[7])
if freed then return {GRANTED, wake(), 0} end
if freed == false then return {GRANTED, 0, 0} end

if leave_line(KEYS[2], acquisition) and state(KEYS[1]) == 'free' then wake() end -- It may have been told that it is next.
if ending(KEYS[2], acquisition) == FREED then return {GRANTED, 0, 0} end
return lost(KEYS[1], KEYS[2], acquisition, memory, ARGV[5], ARGV[7])
