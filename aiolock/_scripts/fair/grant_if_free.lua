-- grant_if_free: grants a free lock at once if its line is empty, or if the acquisition is the first in line; it is put in
-- front of the rest of acquire, which handles all other cases.

-- Milliseconds until a waiting client asks again.
local HEARTBEAT = 250

if ARGV[4] == '1' and redis.call('PTTL', KEYS[1]) == -2 then
  local scores = redis.call('ZMSCORE', KEYS[2], ARGV[2], 'token', "plain's turn")
  -- The tickets stand in front of all marks.
  local line, ticket = redis.call('ZRANGE', KEYS[2], '-inf', '(0', 'BYSCORE', 'LIMIT', 0, 2), 'ticket ' .. ARGV[2]
  if not (scores[1] or scores[3]) and (not line[1] or line[1] == ticket) then
    local time = redis.call('TIME')
    local text = time[1] .. string.sub('00000' .. time[2], -6)
    local granted = grant(time[1] * 1000000 + time[2], text, scores[2], 'aiolock:fair', '1')
    local leads = 0
    if line[1] then
      redis.call('ZREM', KEYS[2], ticket)
      local client = string.match(line[2] or '', '^(ticket .*):%d+$')
      leads = client == string.match(ticket, '^(.*):%d+$') and 1 or 0
    end
    return {GRANTED, granted[2], granted[3], HEARTBEAT, leads}
  end
end

