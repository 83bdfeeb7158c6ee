-- release_last: releases the last hold of an acquisition at once if the lock has no other holder; it is put in front of the
-- rest of release, which handles all other cases.

if ARGV[4] == '0' and redis.pcall('HGET', KEYS[3], 'acquisition') == ARGV[2] and redis.pcall('HLEN', KEYS[1]) == 2
    and redis.call('HEXISTS', KEYS[1], field) == 1 then
  redis.call('DEL', KEYS[1], KEYS[3])
  remember(KEYS[2], FREED, ARGV[2], ARGV[6], ARGV[5], ARGV[7])
  return {APPLIED, redis.call(ARGV[9], ARGV[8], field == ARGV[1] and '0' or '1'), 0}
end

