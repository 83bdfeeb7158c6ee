-- replace: other fields in the place of all that a lock has, for release_later.lua and detach.lua.
--
-- The key exists all the time: see lock.lua. PEXPIRE comes first, because a server out of memory refuses HSET, unless the
-- script has written before.

-- Give the hash *key* these fields and values, remove its others, and let it live for *lease* milliseconds.
local function replace_fields(key, lease, ...)
  local are_new = {}
  for place = 1, select('#', ...), 2 do are_new[select(place, ...)] = true end
  local old = redis.call('HGETALL', key)
  redis.call('PEXPIRE', key, lease)
  redis.call('HSET', key, ...)
  for place = 1, #old, 2 do
    if not are_new[old[place]] then redis.call('HDEL', key, old[place]) end
  end
  redis.call('PEXPIRE', key, lease)
end

