-- grant_if_free: grants a free lock at once if its line is empty; it is put in front of the rest of acquire, which handles
-- all other cases.

-- Milliseconds until a waiting client asks again.
local HEARTBEAT = 250

if ARGV[4] == '1' and redis.call('PTTL', KEYS[1]) == -2 then
  local scores = redis.call('ZMSCORE', KEYS[2], ARGV[2], 'token')
  if not scores[1] and not redis.call('ZRANGE', KEYS[2], '-inf', '(0', 'BYSCORE', 'LIMIT', 0, 1)[1] then
    local time = redis.call('TIME')
    local text = time[1] .. string.sub('00000' .. time[2], -6)
    local granted = grant(time[1] * 1000000 + time[2], text, scores[2], 'aiolock:fair', '1')
    return {GRANTED, granted[2], granted[3], HEARTBEAT, 0}
  end
end

