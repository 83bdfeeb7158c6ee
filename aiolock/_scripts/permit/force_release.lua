-- force_release: put all permits back, with any holder, and wake all waiters. In front of it, ends.lua, late.lua and
-- permit.lua define its functions.
--
-- KEYS[1] count
-- KEYS[2] permits
-- KEYS[3] tokens
-- ARGV[1] request id
-- ARGV[2] token retention, milliseconds
-- ARGV[3] memory of ended acquisitions, milliseconds
-- ARGV[4] channel
-- ARGV[5] PUBLISH or SPUBLISH
--
-- Reply {APPLIED, 1 if there was a holder else 0, 0}  {NOT_A_LOCK, 0, 0}
--
-- Twice: the result of this request is remembered under its id, so the second call answers like the first and leaves
-- new holders alone. Each acquisition that lost permits is remembered as forced.

local known = ending(KEYS[3], ARGV[1])
if known then return {APPLIED, known == FREED and 1 or 0, 0} end
if is_foreign(KEYS[1], KEYS[2]) then return {NOT_A_LOCK, 0, 0} end

local members, memory = redis.call('ZRANGE', KEYS[2], 0, -1), tonumber(ARGV[3])
-- Expired permits have no holder.
local had = redis.call('ZCOUNT', KEYS[2], '(' .. milliseconds(), '+inf') > 0
redis.call('PEXPIRE', KEYS[3], ARGV[2])
redis.call('DEL', KEYS[2])
redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', '(0')
remember(KEYS[3], had and FREED or EXPIRED, ARGV[1], memory, ARGV[2], '')
for _, member in ipairs(members) do
  local acquisition = string.match(member, '^(.*#%d+)#1$')
  if acquisition then remember(KEYS[3], FORCED, acquisition, memory, ARGV[2], '') end
end
put_back(KEYS[1], #members)
announce(KEYS[1], ARGV[4], ARGV[5])
return {APPLIED, had and 1 or 0, 0}
