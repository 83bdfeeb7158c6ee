-- grant_if_free: grants a free lock at once if no waiter goes first; it is put in front of the rest of acquire, which
-- handles all other cases.

if ARGV[4] == '1' and redis.call('PTTL', KEYS[1]) == -2 then
  local scores = redis.call('ZMSCORE', KEYS[2], ARGV[2], 'token', 'plain', "plain's turn")
  if not (scores[1] or scores[3] or scores[4]) then
    local time = redis.call('TIME')
    return grant(time[1] * 1000000 + time[2], time[1] .. string.sub('00000' .. time[2], -6), scores[2])
  end
end

