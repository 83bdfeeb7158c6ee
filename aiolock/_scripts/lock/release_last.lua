-- release_last: releases the last hold of an acquisition at once; it is put in front of the rest of release, which handles
-- all other cases.

if ARGV[4] == '0' and redis.pcall('HGET', KEYS[1], 'aiolock:acquisition') == ARGV[2] then
  redis.call('DEL', KEYS[1])
  remember(KEYS[2], FREED, ARGV[2], ARGV[6], ARGV[5], ARGV[7])
  return {APPLIED, redis.call(ARGV[9], ARGV[8], '0'), 0}
end

