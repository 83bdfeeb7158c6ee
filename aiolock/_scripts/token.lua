-- token: the next token of a name; it is put in front of the scripts that make one.

-- Make the next token at this *time* in microseconds; it is greater than the *last* one, or nil. The set stays for the
-- *retention*, if it is given. *text* is the time as text, or nil: its seconds, and its microseconds with six digits.
-- Returns the token as a number and as text.
local function next_token(tokens, last, time, retention, text)
  local token = math.max(tonumber(last or 0) + 1, time)
  if not text or token > time then text = string.format('%.0f', token) end
  redis.call('ZADD', tokens, text, 'token')
  if retention then redis.call('PEXPIRE', tokens, retention) end
  return token, text
end

