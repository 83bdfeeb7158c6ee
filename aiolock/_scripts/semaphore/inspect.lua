-- inspect: how many permits are available.
--
-- KEYS[1] count
--
-- Reply {GRANTED, available, 0}  {REFUSED, 0, 0} if nobody has said how many there are  {NOT_A_LOCK, 0, 0}
--
-- Twice: it only looks.

local is_counter, available = counter(KEYS[1])
if not is_counter then return {NOT_A_LOCK, 0, 0} end
if not available then return {REFUSED, 0, 0} end
return {GRANTED, available, 0}
