-- answers: the answers of all scripts; it is put in front of each of them.
--
-- A redis.call costs as much as all the rest of a short script, so a script makes no more of them than it needs.
-- Defining a function costs, too: a script first does what most of its calls need, and returns.
--
-- Formatting a large number costs, too: a time that is only written stays the text that TIME answers.
--
-- A server out of memory refuses a script whose first write takes memory, so a PEXPIRE or a DEL comes first.

local GRANTED, REFUSED, LOST, STALE, NOT_A_LOCK = 1, 0, -1, -2, -3
-- The answer to a release, or to another change, which grants nothing.
local APPLIED = 1
local FREED, EXPIRED, TAKEN, FORCED = 1, 2, 3, 4

