-- grant: what the scripts share that grant a lock to one owner; it is put in front of each of them.

-- The reply to an *acquisition* that holds the lock: its grant once more, or one more hold; nil if it does not hold it.
local function again(key, tokens, owner, acquisition, step, holds, lease, retention)
  local last = if_held_by(acquisition, key, 'aiolock:step')
  if not last then return nil end
  if step > tonumber(last) then
    redis.call('PEXPIRE', tokens, retention) -- First: a server out of memory refuses a first write that takes memory.
    redis.call('HSET', key, owner, holds, 'aiolock:step', step)
    lengthen(key, lease)
  else
    write_again(key)
  end
  return {GRANTED, tonumber(redis.call('HGET', key, 'aiolock:token')), redis.call('PTTL', key)}
end

-- Grant the lock, which is free; the *last* token of it, or nil, is what the new one is greater than. What is behind that
-- are further fields of the lock.
local function grant(key, tokens, owner, acquisition, step, holds, lease, retention, last, ...)
  local token = math.max(tonumber(last or 0) + 1, microseconds())
  redis.call('ZADD', tokens, token, 'token')
  redis.call('PEXPIRE', tokens, retention)
  redis.call('HSET', key, owner, holds, 'aiolock:acquisition', acquisition, 'aiolock:token', token,
    'aiolock:step', step, 'aiolock:renewal', 0, ...)
  redis.call('PEXPIRE', key, lease)
  return {GRANTED, token, lease}
end

