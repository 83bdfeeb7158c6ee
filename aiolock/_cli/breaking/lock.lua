-- break: free a lock from one grant, if that still holds it, and wake a waiter.
--
-- KEYS[1] lock
-- KEYS[2] tokens
-- ARGV[1] request id
-- ARGV[2] owner
-- ARGV[3] token of the grant; '' for one of Redisson's, which has none
-- ARGV[4] token retention, milliseconds; a longer one stays
-- ARGV[5] memory of ended acquisitions, milliseconds
-- ARGV[6] channel
-- ARGV[7] PUBLISH or SPUBLISH
--
-- Reply 1 if it was freed, else 0
--
-- Twice: the success is remembered under the id of the request, and the second call gets the same reply. If nothing was
-- freed, the grant is gone and does not come back. The acquisition that lost the lock is remembered as forced.

if ending(KEYS[2], ARGV[1]) == FREED then return 1 end
if state(KEYS[1]) ~= 'held' or redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then return 0 end
if (redis.call('HGET', KEYS[1], 'aiolock:token') or '') ~= ARGV[3] then return 0 end

local memory, retention = tonumber(ARGV[5]), math.max(tonumber(ARGV[4]), redis.call('PTTL', KEYS[2]))
redis.call('PEXPIRE', KEYS[2], retention)
remember(KEYS[2], FREED, ARGV[1], memory, retention, '')
local acquisition = redis.call('HGET', KEYS[1], 'aiolock:acquisition')
if acquisition then remember(KEYS[2], FORCED, acquisition, memory, retention, '') end
redis.call('DEL', KEYS[1])
redis.call(ARGV[7], ARGV[6], '0')
return 1
