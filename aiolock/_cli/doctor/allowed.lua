-- allowed: whether the user may run the commands, without running them.
--
-- ARGV    for each command: its name, a key if it takes one, and as many words as it needs; an empty word ends it
--
-- Reply {1 if the user may run it else 0, for each}  {} when the server cannot tell, as before Redis 7
--
-- Twice: it only reads.

if not redis.acl_check_cmd then return {} end
local allowed, words = {}, {}
for _, word in ipairs(ARGV) do
  if word == '' then
    allowed[#allowed + 1] = redis.acl_check_cmd(unpack(words)) and 1 or 0
    words = {}
  else
    words[#words + 1] = word
  end
end
return allowed
