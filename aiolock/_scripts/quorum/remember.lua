-- remember: lets a server of a quorum vote only if it remembers its grants; it is put in front of the acquire of a
-- lock.
--
-- KEYS    the note, in front of those of the script
-- ARGV    in front of those of the script: 1 for the first question on this connection, else 0; the longest lease of any
--         client, milliseconds; and a token that probably no server has reached yet (see ahead.lua)
--
-- Reply   that of the script, or {ABSTAINS, 0, ms left}, or {LONGER, 0, the longest lease of another client}
--
-- The note has three parts, separated by spaces: the server's run id, the time since which it has forgotten nothing,
-- in milliseconds, and the longest lease that any client has asked with, in milliseconds. If there is no note, or it
-- is of another run, the server may have forgotten grants: it is new, has lost its memory, was flushed, or has loaded
-- an old file. Then it abstains until all earlier grants must have ended. If the server does not tell its run id
-- (ACL), the note counts as being of this run. Since no connection outlives its server, each connection asks for the
-- run id once: that costs as much as all the rest. A note with a time in the future was written before the clock was
-- set back: the wait begins again, and gets no longer than usual.
--
-- If a client's longest lease is shorter than another client's, the server would vote too early after it forgot the
-- other client's grants. So it grants nothing new to such a client, which learns the longest lease and asks again with
-- that.
--
-- The note has no TTL: it is one key of a server, whatever the number of locks. If it expired while nobody uses the
-- server, the server would count as one that has forgotten its grants.

local ABSTAINS, LONGER = -4, -5

local note = table.remove(KEYS, 1)
local is_new, longest, likely = table.remove(ARGV, 1), tonumber(table.remove(ARGV, 1)), tonumber(table.remove(ARGV, 1))
do
  local time = redis.call('TIME')
  local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  local remembered, since, known = string.match(redis.call('GET', note) or '', '^(%S+) (%d+) ?(%d*)$')
  known = tonumber(known or 0) or 0
  local life = remembered
  if is_new == '1' or not remembered then
    local info = redis.pcall('INFO', 'server')
    life = type(info) == 'string' and string.match(info, 'run_id:(%w+)') or remembered or '?'
  end
  local has_forgotten = remembered ~= life or tonumber(since) > now
  if has_forgotten then since = now end
  if has_forgotten or known < longest then
    redis.call('SET', note, life .. ' ' .. since .. ' ' .. math.max(longest, known))
  end
  -- These are the acquire's arguments: an acquisition that has the lock may go on.
  local _, _, step = unpack(ARGV)
  if known > longest and step == '1' then return {LONGER, 0, known} end
  local left = tonumber(since) + longest - now
  if left > 0 then return {ABSTAINS, 0, left} end
end

