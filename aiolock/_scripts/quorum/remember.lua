-- remember: a server of a quorum votes only if it remembers what it granted; it is put in front of what acquires.
--
-- KEYS    the marker, in front of those of the script
-- ARGV    in front of those of the script: 1 if nothing was asked on this connection yet, else 0; the longest lease of any
--         client, milliseconds; and what is likely to be a token that no server has reached (see ahead.lua)
--
-- The marker says in whose life since when nothing was forgotten: the run id of the server, a space, milliseconds. Where
-- it is not there, or of an earlier life, the server may have granted what it has forgotten: since it was new, lost its
-- memory, was flushed, or started from what was on disk a while ago. Then it abstains until whatever it granted before is
-- over: it answers {ABSTAINS, 0, ms left}. A server that does not tell who it is (ACL) is believed its marker. As no
-- connection survives its server, each asks once which life it is: that costs as much as all the rest. A marker of a time
-- that is yet to come was written before the clock was set back: what it waits for begins anew, and lasts no longer.
--
-- The marker has no TTL: it is one key of a server, whatever the number of locks, and while nobody uses the server it must
-- not be forgotten that there is nothing to forget.

local marker = table.remove(KEYS, 1)
local is_new, longest, likely = table.remove(ARGV, 1), tonumber(table.remove(ARGV, 1)), tonumber(table.remove(ARGV, 1))
do
  local time = redis.call('TIME')
  local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  local remembered, since = string.match(redis.call('GET', marker) or '', '^(%S+) (%d+)$')
  local life = remembered
  if is_new == '1' or not remembered then
    local info = redis.pcall('INFO', 'server')
    life = type(info) == 'string' and string.match(info, 'run_id:(%w+)') or '?'
  end
  if remembered ~= life or tonumber(since) > now then
    redis.call('SET', marker, life .. ' ' .. now)
    since = now
  end
  local left = tonumber(since) + longest - now
  if left > 0 then return {-4, 0, left} end
end

