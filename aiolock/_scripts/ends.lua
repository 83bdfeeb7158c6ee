-- ends: what every script that grants something shares: its answers, the clock, and how acquisitions ended; it is put in
-- front of each of them.
--
-- The sorted set of tokens keeps, per name:
--   token                scored by the last token, in microseconds
--   ID                   acquisitions that ended lately, scored by when, in milliseconds, times ten, and how: a
--                        hundredth of any token, so that the two never meet. A command that arrives late finds its
--                        end here. A client names those that no command can be late for; they are forgotten, so that
--                        a name that is used all the time keeps the last of each client, and what went wrong lately.
--
-- Every call costs as much as the whole rest of a short script, so that each asks for no more than it needs.

local GRANTED, REFUSED, LOST, STALE, NOT_A_LOCK = 1, 0, -1, -2, -3
local FREED, EXPIRED, TAKEN, FORCED = 1, 2, 3, 4
local MOST_AT_ONCE = 16 -- Old ends that one command takes away, while all others wait.
local SELDOM = 16 -- Milliseconds; in one of so many a release that need not look for old ends does.

local function microseconds()
  local now = redis.call('TIME')
  return tonumber(now[1]) * 1000000 + tonumber(now[2])
end

-- How the acquisition ended; nil while it has not.
local function ending(tokens, acquisition)
  local score = redis.call('ZSCORE', tokens, acquisition)
  return score and tonumber(score) % 10
end

-- Take away some of the ends that are older than the memory, the oldest first.
local function purge(tokens, now, memory)
  local old = redis.call('ZRANGEBYSCORE', tokens, 0, (now - memory) * 10, 'LIMIT', 0, MOST_AT_ONCE)
  for _, acquisition in ipairs(old) do redis.call('ZREM', tokens, acquisition) end
end

-- Remember how the acquisition ended, in place of *others*, which may be forgotten, with spaces between them. An end that
-- replaces no other takes old ones away, so that there are never more of those than come within the memory.
local function remember(tokens, how, acquisition, memory, retention, others)
  local now, replaced = math.floor(microseconds() / 1000), 0
  for other in string.gmatch(others, '%S+') do replaced = replaced + redis.call('ZREM', tokens, other) end
  if replaced == 0 or now % SELDOM == 0 then purge(tokens, now, memory) end
  redis.call('ZADD', tokens, now * 10 + how, acquisition)
  redis.call('PEXPIRE', tokens, retention)
end

-- The reply to an acquisition that has ended, as *why* says unless another end is remembered; it is from now on.
local function has_ended(tokens, acquisition, why, memory, retention, others)
  local how = ending(tokens, acquisition)
  if how and how ~= FREED then return {LOST, how, 0} end
  if not how then
    redis.call('PEXPIRE', tokens, retention) -- First: a server out of memory refuses a first write that takes memory.
    remember(tokens, why, acquisition, memory, retention, others)
  end
  return {LOST, why, 0}
end

