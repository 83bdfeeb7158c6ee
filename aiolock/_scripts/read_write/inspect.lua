-- inspect: the readers or the writer, and the time that each has left. In front of it, read_write.lua defines what it
-- calls.
--
-- KEYS[1] lock
-- ARGV[1] limit for the number of holds that are listed
--
-- Reply {GRANTED, hold, hold count, ms left, hold, ...}  {NOT_A_LOCK}
--       A hold is its owner, with ':write' after it if it writes. Expired holds are left out.
--
-- Twice: it only reads.

local mode = state(KEYS[1])
if mode == 'foreign' then return {NOT_A_LOCK} end
local fields, reply = redis.call('HGETALL', KEYS[1]), {GRANTED}
for place = 1, #fields, 2 do
  local field, count = fields[place], tonumber(fields[place + 1])
  local left = count and left_of(KEYS[1], field, count) or 0
  if left > 0 and #reply < 3 * ARGV[1] then
    for _, what in ipairs({field, count, left}) do reply[#reply + 1] = what end
  end
end
return reply
