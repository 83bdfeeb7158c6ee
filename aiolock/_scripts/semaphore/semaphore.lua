-- semaphore: what the scripts of a semaphore share whose permits never expire; it is put in front of each of them.
--
-- A semaphore is in Redisson's layout: one number, of the permits that are available. Nobody knows who has the others.

local PROBE = 5000 -- Milliseconds until a waiter asks again, when no message comes.

-- Let so many be available, and tell all who wait, as Redisson does; how many were told. But no number below zero, at
-- which its listeners fail.
local function set(count, available, channel, publish)
  redis.call('SET', count, available, 'KEEPTTL')
  return tonumber(available) < 0 and 0 or redis.call(publish, channel, available)
end
