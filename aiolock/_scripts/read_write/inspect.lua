-- inspect: the readers or the writer, and the time that each has left. In front of it, read_write.lua defines what it
-- calls.
--
-- KEYS[1] lock
-- ARGV[1] limit for the number of holds that are listed; those that end last come first
-- ARGV[2] the owner whose holds are listed; '' for all
--
-- Reply {GRANTED, hold, hold count, ms left, hold, ...}  {NOT_A_LOCK}
--       A hold is its owner, with ':write' after it if it writes. Expired holds are left out.
--
-- Twice: it only reads.

local mode = state(KEYS[1])
if mode == 'foreign' then return {NOT_A_LOCK} end
local fields, holds, reply = redis.call('HGETALL', KEYS[1]), {}, {GRANTED}
for place = 1, #fields, 2 do
  local field, count = fields[place], tonumber(fields[place + 1])
  local is_wanted = ARGV[2] == '' or field == ARGV[2] or field == ARGV[2] .. ':write'
  local left = count and is_wanted and left_of(KEYS[1], field, count) or 0
  if left > 0 then holds[#holds + 1] = {field, count, left} end
end
table.sort(holds, function(one, other) return one[3] > other[3] end)
for place = 1, math.min(#holds, tonumber(ARGV[1])) do
  for _, what in ipairs(holds[place]) do reply[#reply + 1] = what end
end
return reply
