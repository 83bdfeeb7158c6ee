-- number: which texts are numbers of permits, or counts; it is put in front of each script that reads one.

-- The number in *text*, a reply of Redis; nil if it is not a number that Redis can add to, or is greater than any of ours:
-- then the key belongs to something else, and must not be touched.
local function number_of(text)
  local number = tonumber(text)
  return number and math.abs(number) < 2 ^ 53 and string.format('%.0f', number) == text and number or nil
end

