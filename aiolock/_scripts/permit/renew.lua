-- renew: lengthen the life of permits that still belong to their acquisition. In front of it, late.lua and permit.lua
-- define its functions.
--
-- KEYS    count, permits and tokens of each acquisition, one after the other; in a cluster, of one
-- ARGV[1] token retention, milliseconds
-- ARGV[2] memory of ended acquisitions, milliseconds
-- ARGV    then, for each acquisition: its id; lease, milliseconds; number of permits
--
-- Reply   for each acquisition {GRANTED, 0, ms left}  {LOST, why, 0}
--
-- Twice: a renewal sets the time of a permit that exists, never shortens it, and never makes one. A call that arrives
-- late can let a permit live longer than its client expects by that time, and has no other effect.

local retention, memory = ARGV[1], tonumber(ARGV[2])
local now = milliseconds()

local function renew(count, permits, tokens, acquisition, lease, number)
  local expires = expiry(permits, acquisition)
  if not expires or expires <= now then
    put_back(count, take_out(permits, acquisition, number))
    return end_as_lost(tokens, acquisition, memory, retention, '')
  end
  redis.call('PEXPIRE', tokens, retention)
  expires = math.max(expires, now + lease)
  for i = 1, number do redis.call('ZADD', permits, 'XX', expires, permit(acquisition, i)) end
  return {GRANTED, 0, expires - now}
end

local replies = {}
for i = 1, #KEYS / 3 do
  local id, lease, number = ARGV[3 * i], tonumber(ARGV[3 * i + 1]), tonumber(ARGV[3 * i + 2])
  replies[i] = renew(KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i], id, lease, number)
end
return replies
