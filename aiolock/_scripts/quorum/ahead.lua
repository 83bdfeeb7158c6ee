-- ahead: lets all servers of a quorum grant with the same token, so that none must be raised; it is put behind
-- late.lua.
--
-- A token is the time, unless the last token is above that. No two clocks are equal, so a client that knows their
-- differences proposes a time a little ahead of all of them. A proposal that is too far ahead of the server's clock is
-- ignored: when a server has lost its data, it votes again after the longest lease, and its clock must be ahead by then.

local MOST_AHEAD = math.min(1000000, longest * 500)

local clock = microseconds
local microseconds = function()
  local now = clock()
  if likely > now + MOST_AHEAD then return now end
  return math.max(now, likely)
end

