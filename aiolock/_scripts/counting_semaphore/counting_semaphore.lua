-- counting_semaphore: the common part of the scripts of a counting semaphore; it is put in front of each of them.
--
-- A semaphore is in Redisson's layout: one number, of the available permits. The holders of the others are not
-- recorded.

-- Set the number of *available* permits, and publish it to all waiters, as Redisson does; returns the number of
-- receivers. Numbers below zero are not published, because Redisson's listeners fail on them.
local function set(count, available, channel, publish)
  redis.call('SET', count, available, 'KEEPTTL')
  return tonumber(available) < 0 and 0 or redis.call(publish, channel, available)
end
