-- read_card: who a client says it is.
--
-- KEYS[1] client card
--
-- Reply {host, process id, client name}, each nil when unknown
--
-- Twice: it only reads.

return redis.call('HMGET', KEYS[1], 'host', 'pid', 'name')
