-- counter: what scripts share whose primitive is a number that is counted up and down; it is put in front of each of them.
--
-- The number is a string, as Redisson has it. What was counted is remembered in the set of tokens, by the id of the
-- acquisition or of the request, so that it is counted once however often it is sent.

-- Whether the key is a whole number, or is not there; also the number, if it is there.
local function counter(key)
  local value = redis.pcall('GET', key)
  if type(value) == 'table' then
    if redis.call('TYPE', key).ok == 'string' then redis.call('GET', key) end
    return false
  end
  if value and not string.match(value, '^%-?%d+$') then return false end
  return true, value and tonumber(value)
end
