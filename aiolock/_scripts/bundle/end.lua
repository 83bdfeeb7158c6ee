-- end: what stands behind a script of which several calls are made as one command; begin.lua is in front of it. Every call
-- has as many keys and arguments as the others.
--
-- KEYS    those of each call, one after the other
-- ARGV[1] number of calls
-- ARGV    then, those of each call
--
-- Reply   that of each call, or nothing where the server refused something: that call is then made alone, and told why
--
-- Twice: as the script says, of each call by itself. One that was refused half-way is made again as one that is sent again.

end

local calls, replies = tonumber(ARGV[1]), {}
local keys, arguments = #KEYS / calls, (#ARGV - 1) / calls
for call = 0, calls - 1 do
  local done, reply = pcall(one, {unpack(KEYS, call * keys + 1, (call + 1) * keys)},
    {unpack(ARGV, call * arguments + 2, (call + 1) * arguments + 1)})
  replies[call + 1] = done and reply
end
return replies
