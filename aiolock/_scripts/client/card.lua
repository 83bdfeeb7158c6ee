-- card: say who a client is, for as long as it says so again.
--
-- KEYS[1] client card
-- ARGV[1] time to live, milliseconds; 0 takes the card away
-- ARGV[2] host
-- ARGV[3] process id
-- ARGV[4] client name
-- ARGV[5] since when the client is used, seconds of the epoch
--
-- Reply {1}
--
-- Twice: it sets the same fields to the same values.

redis.call('HSET', KEYS[1], 'host', ARGV[2], 'pid', ARGV[3], 'name', ARGV[4], 'since', ARGV[5])
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return {1}
