-- wake: the message to the next waiter; it is put in front of the scripts that release a fair lock, behind fair.lua.

-- Begin the turn of the waiters for the plain lock, which ends even if none of them comes.
local function begin_turn_of_plain(now)
  redis.call('ZREM', KEYS[2], 'plain')
  redis.call('ZADD', KEYS[2], PLAIN + now + TURN, "plain's turn")
end

-- Tell the waiters for the plain lock, if there are any; and, unless it is their turn, the next in line, on the channel of
-- its client. Returns the number of receivers if the client of *acquisition* is one of them, else 0.
local function wake(channel, publish, acquisition)
  local now = math.floor(microseconds() / 1000)
  local first = next_in_line(KEYS[2], now)
  if first == false then first = first_in_line(KEYS[2]) end
  local due = redis.call('ZSCORE', KEYS[2], 'plain')
  local is_due = due and left_of_mark(KEYS[2], 'plain', due, PLAIN + now, LINE_FIRST) <= 0
  if is_due then begin_turn_of_plain(now) end
  if due or not first then
    local receivers = redis.call(publish, channel, '0')
    if is_due or not first then return receivers end
  end
  local client = client_of(first)
  local receivers = redis.call(publish, channel .. ':' .. client, '0')
  return client == client_of(acquisition) and receivers or 0
end

