-- outcome: what a body that runs once came to; it is put in front of the acquire of such a body, and answers in its place.
--
-- KEYS[1] lock; when the body has ended, what it came to
--
-- Reply {DONE, 0, ms for which it is remembered, outcome}; else that of acquire
--
-- Twice: it only reads.

local DONE = 2

local outcome = redis.pcall('HGET', KEYS[1], 'aiolock:outcome')
if type(outcome) == 'string' then return {DONE, 0, redis.call('PTTL', KEYS[1]), outcome} end
