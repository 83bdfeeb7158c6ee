-- latch: the common part of the scripts of a count-down latch; it is put in front of each of them.
--
-- A latch is in Redisson's layout: one number, which is left to count down. At zero there is no key.

-- The texts that are published.
local OPEN, CLOSED = '0', '1'
