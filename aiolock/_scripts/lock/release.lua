-- release: release one hold, or give up an acquisition whose outcome is unknown. In front of it, release_last.lua frees the
-- lock and answers if this is the last hold of the holder.
--
-- KEYS[1] lock
-- KEYS[2] tokens
-- ARGV[1] owner
-- ARGV[2] acquisition id
-- ARGV[3] step
-- ARGV[4] hold count that will be left
-- ARGV[5] token retention, milliseconds
-- ARGV[6] memory of ended acquisitions, milliseconds
-- ARGV[7] ids of ended acquisitions to forget, as none of their commands can still arrive; separated by spaces
-- ARGV[8] channel
-- ARGV[9] PUBLISH or SPUBLISH
--
-- Reply {APPLIED, receivers of the unlock message, 0}  {LOST, why, 0}
--
-- Twice: the end of an acquisition and its kind are remembered, so the second call answers like the first,
-- and an acquire that arrives after it grants nothing. (The receivers are only a hint; a second call says 0.)
-- A count above zero is set, never subtracted from, and only by a later step. A late call for an earlier
-- acquisition finds another id in the lock and frees nothing.

if lower_count() or ending(KEYS[2], ARGV[2]) == FREED then return {APPLIED, 0, 0} end
return end_as_lost(KEYS[1], KEYS[2], ARGV[2], tonumber(ARGV[6]), ARGV[5], ARGV[7])
