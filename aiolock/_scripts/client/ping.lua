-- ping: whether the server takes commands like those of locks; an error where it refuses writes.
--
-- KEYS[1] the key of a lock that nobody uses
--
-- Reply {GRANTED}
--
-- Twice: it changes nothing. XX adds nothing if there is no key, and a key of another type is left alone.

if redis.call('TYPE', KEYS[1]).ok == 'none' then redis.call('ZADD', KEYS[1], 'XX', 0, '') end
return {GRANTED}
