-- KEYS count, channel  ARGV how many, PUBLISH
-- Reply how many receivers there are
return redis.call(ARGV[2], KEYS[2], redis.call('incrby', KEYS[1], ARGV[1]))
