-- raise: lift the next token of a lock above the one that another server of the quorum granted to the same acquisition.
-- In front of it, lock.lua defines its functions.
--
-- KEYS[1] lock
-- KEYS[2] tokens
-- ARGV[1] token
-- ARGV[2] acquisition id
-- ARGV[3] token retention, milliseconds
--
-- Reply {APPLIED, 0, 0}  {LOST, 0, 0} if the acquisition does not have the lock on this server
--
-- Twice: it only ever raises a token, and only for the acquisition that has the lock.

local own = if_held_by(ARGV[2], KEYS[1], 'aiolock:token', '0')
if not own then return {LOST, 0, 0} end
local last = tonumber(redis.call('ZSCORE', KEYS[2], 'token') or 0)
if last < tonumber(ARGV[1]) then redis.call('ZADD', KEYS[2], ARGV[1], 'token') end
redis.call('PEXPIRE', KEYS[2], ARGV[3])
if tonumber(own) < tonumber(ARGV[1]) then redis.call('HSET', KEYS[1], 'aiolock:token', ARGV[1]) end
return {APPLIED, 0, 0}
