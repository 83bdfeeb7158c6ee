-- break: free a read-write lock from one reader or writer, if that is still the same grant, and wake all waiters.
--
-- KEYS[1] lock
-- KEYS[2] tokens
-- ARGV[1] request id
-- ARGV[2] the hold: its owner, with ':write' after it if it writes
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
local mode, field = state(KEYS[1]), ARGV[2]
if mode ~= 'read' and mode ~= 'write' then return 0 end
local count = tonumber(redis.call('HGET', KEYS[1], field) or nil)
if not count then return 0 end
local record = redis.pcall('HMGET', record_of(KEYS[1], field, 1), 'token', 'acquisition')
local token, acquisition = record[1] or '', record[2]
if token ~= ARGV[3] then return 0 end

local memory, retention = tonumber(ARGV[5]), math.max(tonumber(ARGV[4]), redis.call('PTTL', KEYS[2]))
redis.call('PEXPIRE', KEYS[2], retention)
remember(KEYS[2], FREED, ARGV[1], memory, retention, '')
if acquisition then remember(KEYS[2], FORCED, acquisition, memory, retention, '') end
for number = 1, math.min(count, MOST_RECORDS) do redis.call('DEL', record_of(KEYS[1], field, number)) end
redis.call('HDEL', KEYS[1], field)
if settle(KEYS[1]) and writes(field) then redis.call('HSET', KEYS[1], 'mode', 'read') end
redis.call(ARGV[7], ARGV[6], '1')
return 1
