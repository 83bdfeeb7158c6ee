-- break: put back the permits that one acquire of a semaphore took, if it still has them, and wake the waiters.
--
-- KEYS[1] count
-- KEYS[2] permits
-- KEYS[3] tokens
-- ARGV[1] request id
-- ARGV[2] token retention, milliseconds; a longer one stays
-- ARGV[3] memory of ended acquisitions, milliseconds
-- ARGV[4] channel
-- ARGV[5] PUBLISH or SPUBLISH
-- ARGV    then the permits, whose names are never used again
--
-- Reply 1 if any was put back, else 0
--
-- Twice: the success is remembered under the id of the request, and the second call gets the same reply. The
-- acquisition that lost them is remembered as forced.

if ending(KEYS[3], ARGV[1]) == FREED then return 1 end
if is_foreign(KEYS[1], KEYS[2]) then return 0 end

local memory, retention = tonumber(ARGV[3]), math.max(tonumber(ARGV[2]), redis.call('PTTL', KEYS[3]))
redis.call('PEXPIRE', KEYS[3], retention)
local taken = 0
for i = 6, #ARGV do
  if redis.call('ZREM', KEYS[2], ARGV[i]) == 1 then
    taken = taken + 1
    local acquisition = string.match(ARGV[i], '^(.*#%d+)#%d+$')
    if acquisition then remember(KEYS[3], FORCED, acquisition, memory, retention, '') end
  end
end
if taken == 0 then return 0 end
remember(KEYS[3], FREED, ARGV[1], memory, retention, '')
put_back(KEYS[1], taken)
announce(KEYS[1], ARGV[4], ARGV[5])
return 1
