-- remember: a server of a quorum votes only if it remembers what it granted; it is put in front of what acquires.
--
-- KEYS    the marker, in front of those of the script
-- ARGV    the longest lease of any client, milliseconds, in front of those of the script
--
-- The marker says in whose life since when nothing was forgotten: the run id of the server, a space, milliseconds. Where
-- it is not there, or of an earlier life, the server may have granted what it has forgotten: since it was new, lost its
-- memory, was flushed, or started from what was on disk a while ago. Then it abstains until whatever it granted before is
-- over: it answers {ABSTAINS, 0, ms left}. A server that does not tell who it is (ACL) is believed its marker.
--
-- The marker has no TTL: it is one key of a server, whatever the number of locks, and while nobody uses the server it must
-- not be forgotten that there is nothing to forget.

local marker, longest = table.remove(KEYS, 1), tonumber(table.remove(ARGV, 1))
do
  local info = redis.pcall('INFO', 'server')
  local life = type(info) == 'string' and string.match(info, 'run_id:(%w+)') or '?'
  local time = redis.call('TIME')
  local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  local remembered, since = string.match(redis.call('GET', marker) or '', '^(%S+) (%d+)$')
  if remembered ~= life then
    redis.call('SET', marker, life .. ' ' .. now)
    since = now
  end
  local left = tonumber(since) + longest - now
  if left > 0 then return {-4, 0, left} end
end

