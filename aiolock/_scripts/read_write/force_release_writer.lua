-- force_release_writer: free the lock from the writer, and wake all waiters. In front of it, force.lua defines what it
-- calls.
--
-- KEYS[1] lock
-- KEYS[2] tokens
-- ARGV[1] request id
-- ARGV[2] token retention, milliseconds
-- ARGV[3] memory of ended acquisitions, milliseconds
-- ARGV[4] channel
-- ARGV[5] PUBLISH or SPUBLISH
--
-- Reply {APPLIED, 1 if there was any else 0, 0}  {NOT_A_LOCK, 0, 0}
--
-- Twice: the result of this request is remembered under its id, so the second call answers like the first and leaves
-- new holders alone. Each acquisition that lost the lock is remembered as forced.

return force('write', KEYS[1], KEYS[2], ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5])
