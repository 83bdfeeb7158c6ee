-- slot: the present slot of time, by this server's clock; the key of the call chooses the server. In front of it,
-- late.lua defines its functions.
--
-- ARGV[1] length of a slot, milliseconds
--
-- Reply {number of the slot, counted from the epoch; ms until its end}
--
-- Twice: it only reads.

local now, length = math.floor(microseconds() / 1000), tonumber(ARGV[1])
return {math.floor(now / length), length - now % length}
