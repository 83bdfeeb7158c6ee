-- number: reads numbers of permits, and counts; it is put in front of each script that needs one.

-- The number in *text*, a reply of Redis; nil if it is not a number that Redis can add to, or is greater than any of ours:
-- then the key belongs to something else, and must not be touched.
local function number_of(text)
  local number = tonumber(text)
  return number and number < 2 ^ 53 and number > -2 ^ 53 and string.format('%.0f', number) == text and number or nil
end

-- Whether the key is a whole number or does not exist; and the number, if there is one.
local function counter(key)
  local value = redis.pcall('GET', key)
  if not value then return true end
  if type(value) == 'table' then
    -- If the key may be a number, the user lacks the permission to read it: that error goes to the client.
    local kind = redis.call('TYPE', key).ok
    if kind == 'string' or kind == 'none' then redis.call('GET', key) end
    return false
  end
  local number = number_of(value)
  return number ~= nil, number
end

