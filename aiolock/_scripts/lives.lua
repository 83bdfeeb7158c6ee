-- lives: what the scripts of locks share about how long a key lives; it is put in front of each of them.

local function lengthen(key, lease)
  if redis.call('PTTL', key) < lease then redis.call('PEXPIRE', key, lease) end
end

-- Write the TTL that there is. A grant that is told again has to be written again: WAIT asks the replicas for what was
-- written on its own connection, and where that is nothing, all of them have it.
local function write_again(key)
  redis.call('PEXPIRE', key, math.max(1, redis.call('PTTL', key)))
end

