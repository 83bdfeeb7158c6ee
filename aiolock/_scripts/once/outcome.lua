-- outcome: the outcome of a body that runs once; it is put in front of the acquire of such a body, behind the grant of
-- a free lock, and answers in place of the acquire.
--
-- KEYS[1] lock; when the body has ended, its outcome
--
-- Reply {DONE, 0, ms for which it is remembered, outcome}; else that of acquire
--
-- Twice: it only reads.

local DONE = 2

local outcome = redis.pcall('HGET', KEYS[1], 'aiolock:outcome')
-- If the user may not read it, that error is the reply; a key of another type is no lock, which the acquire reports.
if type(outcome) == 'table' and not string.find(outcome.err, 'WRONGTYPE') then return outcome end
if type(outcome) == 'string' then return {DONE, 0, redis.call('PTTL', KEYS[1]), outcome} end
