-- tell_waiters: answers if the lock was freed and the mark was moved, after a message to all waiters if the line is empty, or
-- to this client if the first in line is of this client, which has just shown that it is alive. It is put in front of what
-- handles all other cases.

if is_noted then
  local first = redis.call('ZRANGE', KEYS[2], '-inf', '(0', 'BYSCORE', 'LIMIT', 0, 1)[1]
  if not first then return {APPLIED, redis.call(ARGV[7], ARGV[6], '0'), 0} end
  local client = string.match(first, '^ticket (.*):%d+$')
  if client and client == string.match(ARGV[1], '^(.*):%d+$') and not redis.call('ZSCORE', KEYS[2], 'plain') then
    return {APPLIED, redis.call(ARGV[7], ARGV[6] .. ':' .. client, '0'), 0}
  end
end

