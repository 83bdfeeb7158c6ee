-- counter: the common part of the scripts of a primitive that is a number; it is put in front of each of them.
--
-- The number is a string, as in Redisson. Each change of it is remembered in the set of tokens, under the id of the
-- acquisition or of the request, so that it is made once even if it is sent several times. So is each refused change,
-- as EXPIRED: a late copy of it does not make the change when it has become possible. So a script answers a copy by the
-- end that it finds.

-- Milliseconds until a waiter asks again, if no message comes.
local PROBE = 5000

