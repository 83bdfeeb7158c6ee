-- old: the result of the last run, for as long as it may be served while another run is on its way.
--
-- KEYS[1] old result; release_later leaves it
--
-- Reply {result}, nil if there is none
--
-- Twice: it only reads.

return redis.call('HMGET', KEYS[1], 'aiolock:outcome')
