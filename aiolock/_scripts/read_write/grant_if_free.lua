-- grant_if_free: grants a lock at once if it has no holder, and no other acquisition goes first; it is put in front of the
-- rest of acquire, which handles all other cases.

if ARGV[4] == '1' and redis.call('EXISTS', KEYS[1]) == 0 then
  local scores = redis.call('ZMSCORE', KEYS[2], ARGV[2], 'token')
  if not scores[1] and not redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', '(0', 'LIMIT', 0, 1)[1] then
    local time = redis.call('TIME')
    local text = time[1] .. string.sub('00000' .. time[2], -6)
    local token, told = next_token(KEYS[2], scores[2], time[1] * 1000000 + time[2], ARGV[6], text)
    redis.call('HSET', KEYS[1], 'mode', field == ARGV[1] and 'read' or 'write', field, '1')
    redis.call('HSET', KEYS[3], 'acquisition', ARGV[2], 'token', told, 'step', ARGV[3], 'renewal', '0')
    redis.call('PEXPIRE', KEYS[3], ARGV[5])
    redis.call('PEXPIRE', KEYS[1], ARGV[5])
    return {GRANTED, token, tonumber(ARGV[5]), 0}
  end
end

