"""Lua 5.1, as servers embed it: each script is compiled once, and calls the server that runs it at the moment."""

from collections.abc import Sequence
from typing import Any, Protocol

import lupa.lua51 as lupa

# The forms in which an answer that is no plain value goes to Lua: a table, a status, an error.
TABLE, STATUS, ERROR = range(1, 4)
# The first of several values; the second one is the form of the answer.
NO_VALUE = None

_GLUE = r"""
local call = ...
local floor, format, concat = math.floor, string.format, table.concat

local function result(value, kind, ...)
  if not kind then return value end
  if kind == 1 then return {...} end
  if kind == 2 then return {ok = (...)} end
  return {err = (...)}
end

local function checked(value, kind, ...)
  if not kind then return value end
  if kind == 3 then error({err = (...)}) end
  return result(value, kind, ...)
end

redis = {
  call = function(...) return checked(call(...)) end,
  pcall = function(...) return result(call(...)) end,
  error_reply = function(text) return {err = text} end,
  status_reply = function(text) return {ok = text} end,
}

local function encode(value)
  local kind = type(value)
  if kind == 'string' then return format('$%d\r\n', #value) .. value .. '\r\n' end
  if kind == 'number' then return format(':%.0f\r\n', value >= 0 and floor(value) or -floor(-value)) end
  if kind == 'boolean' then return value and ':1\r\n' or '$-1\r\n' end
  if kind ~= 'table' then return '$-1\r\n' end
  if value.err then return '-' .. value.err .. '\r\n' end
  if value.ok then return '+' .. value.ok .. '\r\n' end
  local parts, n = {}, 0
  while value[n + 1] ~= nil do
    n = n + 1
    parts[n] = encode(value[n])
  end
  return format('*%d\r\n', n) .. concat(parts)
end

local function run(script, keys, ...)
  local all = {...}
  local done, value = pcall(script, {unpack(all, 1, keys)}, {unpack(all, keys + 1)})
  if done then return encode(value) end
  if type(value) == 'table' then return '-' .. value.err .. '\r\n' end
  return '-ERR ' .. tostring(value) .. '\r\n'
end

local function compile(source)
  return assert(loadstring('return function(KEYS, ARGV) ' .. source .. '\nend', '@user_script'))()
end

return run, compile
"""


class Commands(Protocol):
    """The server that runs a script."""

    def from_script(self, name: bytes, args: Sequence[bytes]) -> Any:
        """Run a command of the script; returns a plain value, or `NO_VALUE`, the answer's kind, and its content."""


class Lua:
    """One interpreter for all servers, so that a script compiled in one seed serves the next."""

    def __init__(self) -> None:
        runtime = lupa.LuaRuntime(encoding=None, unpack_returned_tuples=True)
        self._server: Commands
        self._run, self._compile = runtime.execute(_GLUE, self._call)
        self._compiled: dict[bytes, Any] = {}

    def run(self, server: Commands, source: bytes, keys: int, arguments: list[bytes]) -> bytes:
        """The encoded reply of the script."""
        script = self._compiled.get(source)
        if script is None:
            script = self._compiled[source] = self._compile(source)
        self._server = server
        return self._run(script, keys, *arguments)  # type: ignore[no-any-return]

    def _call(self, name: bytes, *args: Any) -> Any:
        for each in args:
            if type(each) is not bytes:
                return self._server.from_script(name, tuple(map(_text, args)))
        return self._server.from_script(name, args)


def _text(value: Any) -> bytes:
    if type(value) is bytes:
        return value
    return b"%d" % value if type(value) is int else b"%.17g" % value
