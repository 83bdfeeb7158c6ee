-- release_clean: release the last hold of an acquisition without remembering its id, since no copy of another command can
-- be late. In front of it, free_and_mark.lua frees the lock, and tell_waiters.lua answers; the rest answers a second copy,
-- and an acquisition that has lost the lock.
--
-- KEYS[1] lock
-- KEYS[2] tokens
-- ARGV[1] acquisition id
-- ARGV[2] number of this release, which no other release of the client has: see `freed` in _core/commands.py
-- ARGV[3] mark of the client
-- ARGV[4] token retention, milliseconds
-- ARGV[5] memory of ended acquisitions, milliseconds
-- ARGV[6] channel
-- ARGV[7] PUBLISH or SPUBLISH
--
-- Reply {APPLIED, receivers of the unlock message, 0}  {LOST, why, 0}
--
-- Twice: the copy that frees the lock scores the mark of its client by the number of this release. The other copy finds
-- this number, and answers the same. Another number, or no mark, means that the acquisition lost the lock: only a release
-- that frees the lock moves the mark, and the client sends no other clean release of this name before this one is
-- answered or has failed. A failover loses the mark only together with the release. No copy of an acquire can be late, or
-- the client uses release instead; so an acquire need not find this end. A loss is remembered by id, as in release. A copy
-- that arrives after a later grant finds another id in the lock, or no lock: it frees nothing, and moves no mark.

-- The answer of the first copy.
local last = redis.call('ZSCORE', KEYS[2], ARGV[3])
if last and tonumber(last) == tonumber(ARGV[2]) then return {APPLIED, 0, 0} end
return end_as_lost(KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[5]), ARGV[4], '')
