-- end: the part after a script that makes several of its calls one command; begin.lua is the part before it. All calls
-- have the same number of keys and arguments.
--
-- KEYS    those of each call, one after the other
-- ARGV[1] number of calls
-- ARGV    then, those of each call
--
-- Reply   that of each call; an error for a call that the server refused
--
-- Twice: as in the script, for each call by itself.

end

local calls, replies = tonumber(ARGV[1]), {}
local keys, arguments = #KEYS / calls, (#ARGV - 1) / calls
for call = 0, calls - 1 do
  replies[call + 1] = try(one, {unpack(KEYS, call * keys + 1, (call + 1) * keys)},
    {unpack(ARGV, call * arguments + 2, (call + 1) * arguments + 1)})
end
return replies
