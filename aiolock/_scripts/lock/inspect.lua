-- inspect: who holds the lock, and for how long.
--
-- KEYS[1] lock
-- ARGV[1] owner to count the holds of
--
-- Reply {GRANTED, holds of that owner, ms left, holder, holds of the holder, 1 if the holder is a client of aiolock}
--       {REFUSED, 0, 0, '', 0, 0} when free  {NOT_A_LOCK, 0, 0, '', 0, 0}
--
-- Twice: it only reads.

local kind, ttl = state(KEYS[1])
if kind == 'foreign' then return {NOT_A_LOCK, 0, 0, '', 0, 0} end
if kind == 'free' then return {REFUSED, 0, 0, '', 0, 0} end
local fields = redis.call('HGETALL', KEYS[1])
local holder, holds, ours = '', 0, 0
for place = 1, #fields, 2 do
  if string.sub(fields[place], 1, 8) ~= 'aiolock:' then
    holder, holds = fields[place], tonumber(fields[place + 1])
  else
    ours = 1
  end
end
return {GRANTED, holder == ARGV[1] and holds or 0, ttl, holder, holds, ours}
