-- token: the next token of a name; it is put in front of the scripts that make one.

-- Make the next token at this *time* in microseconds; it is greater than the *last* one, or nil. The set stays for the
-- *retention*, if it is given. Returns the token as a number and as text.
local function next_token(tokens, last, time, retention)
  local token = math.max(tonumber(last or 0) + 1, time)
  local told = string.format('%.0f', token)
  redis.call('ZADD', tokens, told, 'token')
  if retention then redis.call('PEXPIRE', tokens, retention) end
  return token, told
end

