-- drain: take all permits that are available. In front of it, ends.lua and number.lua define its functions.
--
-- KEYS[1] count
-- KEYS[2] tokens
-- ARGV[1] request id
-- ARGV[2] token retention, milliseconds
-- ARGV[3] memory of ended acquisitions, milliseconds
-- ARGV[4] ids of ended acquisitions to forget, as none of their commands can still arrive; separated by spaces
-- ARGV[5] number of permits to begin with if none is set
--
-- Reply {APPLIED, number that it took, 0}  {NOT_A_LOCK, 0, 0}
--
-- Twice: the request and its number of permits are remembered in one score; the second call takes none, and answers the
-- same.

local is_counter, available = counter(KEYS[1])
if not is_counter then return {NOT_A_LOCK, 0, 0} end
local took = 'drain ' .. ARGV[1] .. ' '
local ended = redis.call('ZSCORE', KEYS[2], ARGV[1])
if ended then
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], ended, ended)) do
    if string.sub(member, 1, #took) == took then return {APPLIED, tonumber(string.sub(member, #took + 1)), 0} end
  end
end

available = math.max(0, available or tonumber(ARGV[5]))
-- The server may cut the script short when it has forgotten the only end, if the slot moves: see lock.lua.
remember(KEYS[2], FREED, ARGV[1], ARGV[3], ARGV[2], ARGV[4])
redis.call('ZADD', KEYS[2], redis.call('ZSCORE', KEYS[2], ARGV[1]), took .. available)
if available > 0 then redis.call('SET', KEYS[1], 0, 'KEEPTTL') end
return {APPLIED, available, 0}
