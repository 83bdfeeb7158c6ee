-- late: the common part for commands that may arrive late: the clock, marks with a time, and the ends of acquisitions; it
-- is put behind ends.lua, and behind scripts that may answer without it.

local function microseconds()
  local now = redis.call('TIME')
  return tonumber(now[1]) * 1000000 + tonumber(now[2])
end

local function milliseconds()
  return math.floor(microseconds() / 1000)
end

-- Milliseconds until the time of a *mark*, zero or less if it has passed. *at* is the score that it would have now. If its
-- *score* is more than *most* ahead, the clock was set back: the mark gets the time that a new one has.
local function left_of_mark(tokens, mark, score, at, most)
  local left = score and tonumber(score) - at or 0
  if left <= most then return left end
  redis.call('ZADD', tokens, at + most, mark)
  return most
end

-- The kind of the acquisition's end; nil if it has not ended.
local function ending(tokens, acquisition)
  local score = redis.call('ZSCORE', tokens, acquisition)
  return score and tonumber(score) % 10
end

-- End an acquisition that holds nothing, for the reason *why*, which is remembered, unless it has ended before. Returns the
-- reply, with the reason of its end.
local function end_as(tokens, acquisition, why, memory, retention, others)
  local how = ending(tokens, acquisition)
  if how and how ~= FREED then return {LOST, how, 0} end
  if not how then
    redis.call('PEXPIRE', tokens, retention)
    remember(tokens, why, acquisition, memory, retention, others)
  end
  return {LOST, why, 0}
end

