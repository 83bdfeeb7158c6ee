-- grant: the common part of the scripts that grant a lock to one owner; it is put in front of each of them, and reads their
-- keys and arguments.

local SECOND = 1000000

-- Grant the free lock, at this *time* in microseconds. *text* is the time as text, or nil: its seconds, and its microseconds
-- with six digits. The new token is greater than the *last* one, which may be nil. The other arguments are further fields
-- and values of the lock.
local function grant(time, text, last, ...)
  last = tonumber(last or 0)
  local token = math.max(last + 1, time)
  if not text or token > time then text = string.format('%.0f', token) end
  redis.call('ZADD', KEYS[2], text, 'token')
  -- The first grant of each second is enough to keep the set alive.
  if last < time - time % SECOND or last > time then redis.call('PEXPIRE', KEYS[2], ARGV[6]) end
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[4], 'aiolock:acquisition', ARGV[2], 'aiolock:token', text, ...)
  if ARGV[3] ~= '1' then redis.call('HSET', KEYS[1], 'aiolock:step', ARGV[3]) end
  redis.call('PEXPIRE', KEYS[1], ARGV[5])
  return {GRANTED, token, tonumber(ARGV[5])}
end

