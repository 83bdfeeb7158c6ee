-- inspect: who holds the lock, and for how long.
--
-- KEYS[1] lock
--
-- Reply {GRANTED, holder, hold count, ms left, 1 if the holder is a client of aiolock}
--       {GRANTED} when free: behind it comes a row for each hold, as read_write/inspect tells them
--       {NOT_A_LOCK}
--
-- Twice: it only reads.

local kind, ttl = state(KEYS[1])
if kind == 'foreign' then return {NOT_A_LOCK} end
if kind == 'free' then return {GRANTED} end
local fields = redis.call('HGETALL', KEYS[1])
local holder, holds, ours = '', 0, 0
for place = 1, #fields, 2 do
  if string.sub(fields[place], 1, 8) ~= 'aiolock:' then
    holder, holds = fields[place], tonumber(fields[place + 1])
  else
    ours = 1
  end
end
return {GRANTED, holder, holds, ttl, ours}
