-- latch: what the scripts of a count-down latch share; it is put in front of each of them.
--
-- A latch is in Redisson's layout: one number, of what is still to be counted down. At zero there is no key.

local OPEN, CLOSED = '0', '1' -- What is published.
