-- clock: gives a real server the clock of the model; the comparison puts it in front of every script.
--
-- KEYS    those of the script
-- ARGV    those of the script, and behind them the time in microseconds
--
-- Reply   that of the script
--
-- The server's own clock is far behind the model's, so that no key expires by itself. Keys that have expired by the
-- model's clock are deleted first, and commands that take or tell a time to live use the time at which a key expires.

local redis = (function(server, now)
  local milliseconds = math.floor(now / 1000)
  local time = {string.format('%.0f', math.floor(now / 1000000)), string.format('%.0f', now % 1000000)}

  local function with_clock(call)
    return function(name, key, ...)
      if name == 'TIME' then return {unpack(time)} end
      if name == 'PTTL' then
        local ends = call('PEXPIRETIME', key)
        return ends < 0 and ends or ends - milliseconds
      end
      if name == 'PEXPIRE' then
        local lasts = type(...) == 'number' and string.format('%.17g', (...)) or (...)
        -- The server itself deletes a key that is to last no time, and refuses what is no integer.
        if not string.find(lasts, '^[1-9]%d*$') then return call('PEXPIRE', key, ...) end
        return call('PEXPIREAT', key, string.format('%.0f', milliseconds + tonumber(lasts)), select(2, ...))
      end
      return call(name, key, ...)
    end
  end

  for _, key in ipairs(server.call('KEYS', '*')) do -- A script may look at keys that it does not declare.
    local ends = server.call('PEXPIRETIME', key)
    if ends >= 0 and ends <= milliseconds then server.call('DEL', key) end
  end
  return setmetatable({call = with_clock(server.call), pcall = with_clock(server.pcall)}, {__index = server})
end)(redis, tonumber(table.remove(ARGV)))

