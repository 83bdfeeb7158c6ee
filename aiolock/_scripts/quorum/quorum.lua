-- quorum: what the scripts share that raise a token; it is put in front of each of them.

local function raise(tokens, token, retention)
  local last = tonumber(redis.call('ZSCORE', tokens, 'token') or 0)
  if last < tonumber(token) then redis.call('ZADD', tokens, token, 'token') end
  redis.call('PEXPIRE', tokens, retention)
end

