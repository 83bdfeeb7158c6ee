-- inspect: the holder of the lock, and the time that it has left. In front of it, lock.lua defines its functions.
--
-- KEYS[1] lock
--
-- Reply {GRANTED, holder, hold count, ms left}
--       {GRANTED} if the lock is free: each hold adds three elements, as in read_write/inspect
--       {NOT_A_LOCK}
--
-- Twice: it only reads.

local kind, ttl = state(KEYS[1])
if kind == 'foreign' then return {NOT_A_LOCK} end
if kind == 'free' then return {GRANTED} end
local fields = redis.call('HGETALL', KEYS[1])
local holder, holds = '', 0
for place = 1, #fields, 2 do
  local count = tonumber(fields[place + 1])
  if count and string.sub(fields[place], 1, 8) ~= 'aiolock:' then holder, holds = fields[place], count end
end
return {GRANTED, holder, holds, ttl}
