-- lower_count: the common part of the scripts that release a lock; it is put in front of each of them, and reads their keys
-- and arguments.

-- Set the hold count that is left, which is above zero, because release_last.lua has handled the last hold. Returns whether
-- the acquisition holds the lock.
local function lower_count()
  local last = if_held_by(ARGV[2], KEYS[1], 'aiolock:step', '1')
  if last and tonumber(ARGV[3]) > tonumber(last) then
    redis.call('PEXPIRE', KEYS[2], ARGV[5])
    redis.call('HSET', KEYS[1], ARGV[1], ARGV[4], 'aiolock:step', ARGV[3])
  end
  return last ~= nil
end

