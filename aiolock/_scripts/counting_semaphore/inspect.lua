-- inspect: the number of available permits. In front of it, number.lua defines its functions.
--
-- KEYS[1] count
--
-- Reply {GRANTED, available, 0}  {REFUSED, 0, 0} if no number of permits is set  {NOT_A_LOCK, 0, 0}
--
-- Twice: it only reads.

local is_counter, available = counter(KEYS[1])
if not is_counter then return {NOT_A_LOCK, 0, 0} end
if not available then return {REFUSED, 0, 0} end
return {GRANTED, available, 0}
