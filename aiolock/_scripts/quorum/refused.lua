-- refused: lets a server of a quorum also report the acquisition that has the lock; it is put behind grant_again.lua.
--
-- A lock that one acquisition has on a majority of the servers is held. A lock that several acquisitions have on a few
-- servers each is held by nobody, and all of them give it back.

local function refused(key, ttl)
  return {REFUSED, 0, ttl, redis.call('HGET', key, 'aiolock:acquisition')}
end

