-- replace_holder: frees a lock and grants it to the next owner, if nothing else is to be done; it is put in front of the rest
-- of hand_off, which handles all other cases.

local released, number, mark, _, _, channel, publish = unpack(ARGV, 8)
-- Waiters of other clients ask again at the end of the lease that they were told: if the new one ends sooner, they need a
-- message.
if ARGV[4] == '1' and redis.pcall('HGET', KEYS[1], 'aiolock:acquisition') == released
  and redis.call('PTTL', KEYS[1]) <= tonumber(ARGV[5]) then
  local scores = redis.call('ZMSCORE', KEYS[2], ARGV[2], 'token', 'plain', "plain's turn", mark)
  if scores[5] and not (scores[1] or scores[3] or scores[4]) then
    -- The mark first: a server out of memory refuses it, and a copy of the release finds it if the server refuses the grant.
    redis.call('ZADD', KEYS[2], number, mark)
    redis.call('DEL', KEYS[1])
    local time = redis.call('TIME')
    local text = time[1] .. string.sub('00000' .. time[2], -6)
    local done, granted = pcall(grant, time[1] * 1000000 + time[2], text, scores[2])
    if done then return {{APPLIED, 0, 0}, granted} end
    redis.call(publish, channel, '0')
  end
end

