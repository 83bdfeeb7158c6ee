-- add_mark: adds the mark of a client that has none yet, and removes old marks and ends; it is put behind ends.lua.

-- This score is above those of all ids, and below those of all marks.
local FIRST_MARK = 100000000000000
-- The numbers for the releases of one age; an age is 64 seconds of the token.
local NUMBERS = 16777216
-- Whole ages after which no client waits any more for the answer that a mark is kept for.
local AGES = 2

if freed and not is_noted then
  redis.call('ZADD', KEYS[2], ARGV[2], ARGV[3])
  redis.call('PEXPIRE', KEYS[2], ARGV[4])
  remove_some(KEYS[2], FIRST_MARK, '(' .. string.format('%.0f', (math.floor(ARGV[2] / NUMBERS) - AGES) * NUMBERS))
  if ARGV[2] % SELDOM_NOTED == 0 then
    local time = redis.call('TIME')
    remove_some(KEYS[2], 0, (time[1] * 1000 - ARGV[5]) * 10)
  end
  is_noted = true
end

