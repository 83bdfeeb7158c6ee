-- acquire: grant permits to an acquisition, all that it wants or none.
--
-- KEYS[1] count
-- KEYS[2] permits
-- KEYS[3] tokens
-- ARGV[1] acquisition id
-- ARGV[2] lease, milliseconds
-- ARGV[3] token retention, milliseconds
-- ARGV[4] number of permits
-- ARGV[5] number of permits that there are, if nobody has said so yet; '' if that is not known
-- ARGV[6] milliseconds for which others may not overtake it when it is refused; 0 if it does not wait
-- ARGV[7] channel
-- ARGV[8] PUBLISH or SPUBLISH
--
-- Reply {GRANTED, token, ms left, ms after which others may be granted}  {STALE, 0, 0}  {NOT_A_LOCK, 0, 0}
--       {REFUSED, 0, ms after which it may be granted, 1 if others may not overtake it, or nothing}
--
-- Twice: the id finds its own grant, and nothing is counted again; it is told a later token, and whoever was told an
-- earlier one did not hear it. An id that was released or given up is STALE: a call that arrives late grants nothing.

local acquisition, lease, wanted = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[4])

local function next_token()
  local last = redis.call('ZSCORE', KEYS[3], 'token')
  local token = math.max(tonumber(last or 0) + 1, microseconds())
  redis.call('ZADD', KEYS[3], token, 'token')
  redis.call('PEXPIRE', KEYS[3], ARGV[3])
  return token
end

-- Milliseconds until the next permit expires.
local function next_expiry(now)
  local first = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2]
  return first and math.min(PROBE, math.max(0, tonumber(first) - now)) or PROBE
end

local now = milliseconds()
local expires = expiry(KEYS[2], acquisition)
if expires and expires > now then
  local left = tonumber(redis.call('GET', KEYS[1]) or 0)
  return {GRANTED, next_token(), expires - now, left > 0 and 0 or next_expiry(now)}
end
if is_foreign(KEYS[1], KEYS[2]) then return {NOT_A_LOCK, 0, 0} end
if ending(KEYS[3], acquisition) then return {STALE, 0, 0} end
if expires then put_back(KEYS[1], take_out(KEYS[2], acquisition, wanted)) end -- Granted unseen, and over.

local available = tonumber(redis.call('GET', KEYS[1]))
local expired = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'LIMIT', 0, MOST_BACK + wanted)
for _, member in ipairs(expired) do redis.call('ZREM', KEYS[2], member) end
if not available and ARGV[5] ~= '' then
  available = tonumber(ARGV[5]) - redis.call('ZCARD', KEYS[2])
  redis.call('SET', KEYS[1], available)
elseif available and #expired > 0 then
  available = redis.call('INCRBY', KEYS[1], #expired)
end
available = available or 0

local is_next, keeps = turn(KEYS[3], now)
if is_next and is_next ~= acquisition then return {REFUSED, 0, keeps} end
if available < wanted then
  local too_many = wanted > available + redis.call('ZCARD', KEYS[2]) -- Than there will be without somebody's word.
  if too_many and end_turn(KEYS[3], acquisition) then announce(KEYS[1], ARGV[7], ARGV[8]) end
  if wanted == 1 or too_many or ARGV[6] == '0' then return {REFUSED, 0, next_expiry(now)} end
  take_turn(KEYS[3], acquisition, now + ARGV[6], ARGV[3])
  return {REFUSED, 0, math.min(next_expiry(now), tonumber(ARGV[6]) / 2), 1}
end

local token = next_token()
redis.call('DECRBY', KEYS[1], wanted)
for i = 1, wanted do redis.call('ZADD', KEYS[2], now + lease, permit(acquisition, i)) end
local ttl = redis.call('PTTL', KEYS[1])
if ttl > 0 then redis.call('PEXPIRE', KEYS[2], ttl) end
local left = available - wanted
if is_next and end_turn(KEYS[3], acquisition) and left > 0 then announce(KEYS[1], ARGV[7], ARGV[8]) end
return {GRANTED, token, lease, left > 0 and 0 or next_expiry(now)}
