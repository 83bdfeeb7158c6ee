-- grant_if_free: grants permits at once if they are available and nothing waits for them; it is put in front of the rest of
-- acquire, which handles all other cases.

do
  local wanted, lease, time = tonumber(ARGV[4]), tonumber(ARGV[2]), redis.call('TIME')
  local now = math.floor(time[1] * 1000 + time[2] / 1000)
  local count, first = redis.pcall('GET', KEYS[1]), redis.pcall('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
  local available = number_of(count)
  local is_sound = not first.err and (not first[1]
    or tonumber(first[2]) > now and not redis.call('ZSCORE', KEYS[2], ARGV[1] .. '#1'))
  if is_sound and available and available >= wanted then
    local scores = redis.call('ZMSCORE', KEYS[3], ARGV[1], 'token')
    if not scores[1] and not redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', LINE_ENDS, 'LIMIT', 0, 1)[1] then
      local text = time[1] .. string.sub('00000' .. time[2], -6)
      local token = next_token(KEYS[3], scores[2], time[1] * 1000000 + time[2], ARGV[3], text)
      local left, expires = redis.call('DECRBY', KEYS[1], wanted), string.format('%.0f', now + lease)
      for number = 1, wanted do redis.call('ZADD', KEYS[2], expires, ARGV[1] .. '#' .. number) end
      local ttl = redis.call('PTTL', KEYS[1])
      if ttl > 0 then redis.call('PEXPIRE', KEYS[2], ttl) end
      local soon = math.min(LONGEST_PROBE, lease, first[1] and tonumber(first[2]) - now or LONGEST_PROBE)
      return {GRANTED, token, lease, left > 0 and 0 or soon, left}
    end
  end
end

