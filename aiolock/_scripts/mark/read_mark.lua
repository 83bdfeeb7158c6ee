-- read_mark: the mark that whoever has a lock left beside it.
--
-- KEYS[1] mark
--
-- Reply {text}, nil when there is none
--
-- Twice: it only reads.

return redis.call('HMGET', KEYS[1], 'text')
