-- release_clean: release the last hold of an acquisition without remembering its id, since no copy of another command can
-- be late; wake the next waiter. In front of it, free_and_mark.lua frees the lock, and tell_waiters.lua answers if nobody
-- waits, or if the first in line is of the same client.
--
-- KEYS[1] lock
-- KEYS[2] tokens
-- ARGV[1] acquisition id
-- ARGV[2] number of this release, which no other release of the client has: see `freed` in _core/commands.py
-- ARGV[3] mark of the client
-- ARGV[4] token retention, milliseconds
-- ARGV[5] memory of ended acquisitions, milliseconds
-- ARGV[6] channel of all clients; the channel of one client has a colon and the client after it
-- ARGV[7] PUBLISH or SPUBLISH
--
-- Reply {APPLIED, receivers of the message if this client is one of them else 0, 0}  {LOST, why, 0}
--
-- Twice: as in release_clean of a plain lock.

if freed then return {APPLIED, wake(ARGV[6], ARGV[7], ARGV[1]), 0} end

-- The answer of the first copy.
local last = redis.call('ZSCORE', KEYS[2], ARGV[3])
if last and tonumber(last) == tonumber(ARGV[2]) then return {APPLIED, 0, 0} end
return end_as_lost(KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[5]), ARGV[4], '')
