-- grant_again: the common part of the scripts that grant a lock to one owner, for a lock that is not free; it is put in
-- front of each of them.

-- The reply to an acquisition while another one has the lock, for *ttl* more milliseconds.
local function refused(key, ttl)
  return {REFUSED, 0, ttl}
end

-- The reply to an *acquisition* that holds the lock: the same grant again, or one more hold; nil if it has no lock.
local function again(key, tokens, owner, acquisition, step, holds, lease, retention)
  local last = if_held_by(acquisition, key, 'aiolock:step', '1')
  if not last then return nil end
  if step > tonumber(last) then
    redis.call('PEXPIRE', tokens, retention)
    redis.call('HSET', key, owner, holds, 'aiolock:step', step)
    lengthen(key, lease)
  else
    write_again(key)
  end
  return {GRANTED, tonumber(redis.call('HGET', key, 'aiolock:token')), redis.call('PTTL', key)}
end

