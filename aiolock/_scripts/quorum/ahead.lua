-- ahead: let all servers of a quorum grant with the same token, so that none need be raised; it is put behind ends.lua.
--
-- A token is the time, if the last one is not above that. No two clocks are alike, and a client that knows by how much they
-- differ proposes what lies a little ahead of all of them. But a clock is believed more than a client.

local MOST_AHEAD = 1000000 -- Microseconds.

local clock = microseconds
local microseconds = function()
  local now = clock()
  if likely > now + MOST_AHEAD then return now end
  return math.max(now, likely)
end

