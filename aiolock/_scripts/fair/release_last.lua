-- release_last: releases the last hold of an acquisition at once, and tells all waiters if the line is empty; it is put in
-- front of the rest of release, which handles all other cases.

local freed = ARGV[4] == '0' and redis.pcall('HGET', KEYS[1], 'aiolock:acquisition') == ARGV[2]
if freed then
  redis.call('DEL', KEYS[1])
  remember(KEYS[2], FREED, ARGV[2], ARGV[6], ARGV[5], ARGV[7])
  if not redis.call('ZRANGE', KEYS[2], '-inf', '(0', 'BYSCORE', 'LIMIT', 0, 1)[1] then
    return {APPLIED, redis.call(ARGV[9], ARGV[8], '0'), 0}
  end
end

