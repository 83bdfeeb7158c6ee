-- wait: ask whether the count is zero. In front of it, number.lua defines its functions.
--
-- KEYS[1] count
--
-- Reply {GRANTED, 0, 0}  {REFUSED, count, ms after which to ask again}  {NOT_A_LOCK, 0, 0}
--
-- Twice: it only reads.

local is_counter, count = counter(KEYS[1])
if not is_counter then return {NOT_A_LOCK, 0, 0} end
if (count or 0) <= 0 then return {GRANTED, 0, 0} end
return {REFUSED, count, PROBE}
