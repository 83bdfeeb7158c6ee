-- read_mark: the mark that the holder of a lock left.
--
-- KEYS[1] mark
--
-- Reply {text}, nil when there is none
--
-- Twice: it only reads.

return redis.call('HMGET', KEYS[1], 'text')
