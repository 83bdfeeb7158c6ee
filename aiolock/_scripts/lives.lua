-- lives: the common part of the scripts of locks about the lifetime of keys; it is put in front of each of them.

local function lengthen(key, lease)
  if redis.call('PTTL', key) < lease then redis.call('PEXPIRE', key, lease) end
end

-- Write the present TTL again, for a grant that is reported again: WAIT asks the replicas only about writes of its own
-- connection, and if there are none, the answer is that all replicas have them.
local function write_again(key)
  redis.call('PEXPIRE', key, math.max(1, redis.call('PTTL', key)))
end

