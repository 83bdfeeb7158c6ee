-- release: release one hold, or give up an acquisition whose outcome is unknown; wake the next in line. In front of it,
-- release_last.lua frees the lock if this is the last hold of the holder, and answers if nobody waits.
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
-- ARGV[8] channel of all clients; the channel of one client has a colon and the client after it
-- ARGV[9] PUBLISH or SPUBLISH
--
-- Reply {APPLIED, receivers of the message if this client is one of them else 0, 0}  {LOST, why, 0}
--
-- Twice: as in release of a plain lock. The second call finds no ticket to remove.

local acquisition = ARGV[2]

if freed then return {APPLIED, wake(ARGV[8], ARGV[9], acquisition), 0} end
if lower_count() then return {APPLIED, 0, 0} end

-- The acquisition may have got the message that it is the next: wake the waiter behind it.
if leave_line(KEYS[2], acquisition) and state(KEYS[1]) == 'free' then wake(ARGV[8], ARGV[9], acquisition) end
if ending(KEYS[2], acquisition) == FREED then return {APPLIED, 0, 0} end
return end_as_lost(KEYS[1], KEYS[2], acquisition, tonumber(ARGV[6]), ARGV[5], ARGV[7])
