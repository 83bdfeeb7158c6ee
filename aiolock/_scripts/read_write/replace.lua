-- replace: replaces one hold of a read-write lock by another; it is put in front of the scripts that detach and adopt.

-- Replace the hold of the field *old* by one of the field *new*, for *lease* milliseconds. The other arguments are the
-- fields and values of its *record*. Returns whether an expired writer was removed, which the waiters have to be told.
local function replace(lock, old, new, record, lease, ...)
  redis.call('HDEL', lock, old)
  redis.call('HSET', lock, new, '1')
  redis.call('HSET', record, ...)
  redis.call('PEXPIRE', record, lease)
  lengthen(lock, lease)
  local is_dropped = drop_expired_writer(lock)
  settle(lock)
  return is_dropped
end

