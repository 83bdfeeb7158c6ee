-- inspect: who reads or writes, and for how long.
--
-- KEYS[1] lock
-- ARGV[1] how many holds to name at most
--
-- Reply {GRANTED, hold, hold count, ms left, 1 if it is of a client of aiolock, hold, ...}  {NOT_A_LOCK}
--       A hold is its owner, and ':write' behind that if it writes. One that has expired is left out.
--
-- Twice: it only reads.

local mode = state(KEYS[1])
if mode == 'foreign' then return {NOT_A_LOCK} end
local fields, reply = redis.call('HGETALL', KEYS[1]), {GRANTED}
for place = 1, #fields, 2 do
  local field, count = fields[place], tonumber(fields[place + 1])
  local left = count and left_of(KEYS[1], field, count) or 0
  if left > 0 and #reply < 4 * ARGV[1] then
    local ours = redis.call('TYPE', record_of(KEYS[1], field, 1)).ok == 'hash'
    for _, what in ipairs({field, count, left, ours and 1 or 0}) do reply[#reply + 1] = what end
  end
end
return reply
