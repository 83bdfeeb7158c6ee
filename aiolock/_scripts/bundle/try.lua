-- try: calls one of several scripts that are one command; it is put in front of them.

-- The reply of *call*, a script as a function; an error for a call that the server refused.
local function try(call, keys, arguments)
  local done, reply = pcall(call, keys, arguments)
  if not done and type(reply) == 'string' then reply = {err = string.gsub(reply, '^@user_script: ?%d+: %-?', '')} end
  return reply
end

