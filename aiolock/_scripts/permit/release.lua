-- release: put the permits of an acquisition back, or give up an acquisition whose outcome is unknown. In front of it,
-- release_last.lua puts back permits that have not expired, and answers.
--
-- KEYS[1] count
-- KEYS[2] permits
-- KEYS[3] tokens
-- ARGV[1] acquisition id
-- ARGV[2] token retention, milliseconds
-- ARGV[3] memory of ended acquisitions, milliseconds
-- ARGV[4] ids of ended acquisitions to forget, as none of their commands can still arrive; separated by spaces
-- ARGV[5] number of permits
-- ARGV[6] channel
-- ARGV[7] PUBLISH or SPUBLISH
--
-- Reply {APPLIED, receivers of the message, 0}  {LOST, why, 0}
--
-- Twice: the end of an acquisition and its kind are remembered, so the second call answers like the first and puts
-- nothing back, and an acquire that arrives after it grants nothing.

local acquisition, memory = ARGV[1], tonumber(ARGV[3])

local was_first = leave_line(KEYS[3], place(acquisition, ARGV[5]))
local expires = expiry(KEYS[2], acquisition)
local taken = take_out(KEYS[2], acquisition, tonumber(ARGV[5]))
put_back(KEYS[1], taken)
if expires then
  local in_time = expires > milliseconds()
  remember(KEYS[3], in_time and FREED or EXPIRED, acquisition, memory, ARGV[2], ARGV[4])
  local receivers = announce(KEYS[1], ARGV[6], ARGV[7])
  if in_time then return {APPLIED, receivers, 0} end
  return {LOST, EXPIRED, 0}
end
if taken > 0 or was_first and (available_of(KEYS[1]) or 0) > 0 then announce(KEYS[1], ARGV[6], ARGV[7]) end
if ending(KEYS[3], acquisition) == FREED then return {APPLIED, 0, 0} end
return end_as_lost(KEYS[3], acquisition, memory, ARGV[2], ARGV[4])
