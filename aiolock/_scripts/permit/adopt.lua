-- adopt: grant the permits of a detached hold to an acquisition. In front of it, ends.lua, late.lua, permit.lua,
-- move.lua and token.lua define its functions.
--
-- KEYS[1] count
-- KEYS[2] permits
-- KEYS[3] tokens
-- ARGV[1] acquisition id
-- ARGV[2] lease, milliseconds
-- ARGV[3] token retention, milliseconds
-- ARGV[4] memory of ended acquisitions, milliseconds
-- ARGV[5] id of the detached hold
-- ARGV[6] number of permits
-- ARGV[7] channel
-- ARGV[8] PUBLISH or SPUBLISH
--
-- Reply {GRANTED, token, ms left, ms after which others may be granted, 0}  {STALE, 0, 0}
--       {LOST, why, 0}: why the detached hold has ended
--
-- The token is greater than that of the detached hold, which ends. If the permits will be available sooner than before,
-- waiters are told to ask again.
--
-- Twice: the id finds its own grant; the reply has a later token, and the reply with the earlier token did not reach its
-- client. An id that was released or given up is STALE, so a call that arrives late grants nothing. No call grants anything
-- once the detached hold has ended, and no other hold ever has its id.

local acquisition, detached, number = ARGV[1], ARGV[5], tonumber(ARGV[6])
local lease, retention, memory = tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local time = microseconds()
local now = math.floor(time / 1000)

local function granted(ms)
  redis.call('PEXPIRE', KEYS[3], retention)
  local token = next_token(KEYS[3], redis.call('ZSCORE', KEYS[3], 'token'), time, retention)
  return {GRANTED, token, ms, LONGEST_PROBE, 0}
end

local expires = expiry(KEYS[2], acquisition)
if expires and expires > now then return granted(expires - now) end
local how = ending(KEYS[3], acquisition)
if how then return how == FREED and {STALE, 0, 0} or {LOST, how, 0} end
expires = expiry(KEYS[2], detached)
if not expires or expires <= now then return end_as_lost(KEYS[3], detached, memory, retention, '') end

local reply = granted(lease)
move(KEYS[2], detached, acquisition, number, now + lease)
remember(KEYS[3], TAKEN, detached, memory, retention, '')
if now + lease < expires then tell_to_ask(KEYS[1], number, ARGV[7], ARGV[8]) end
return reply
