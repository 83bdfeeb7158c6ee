-- adopt: let an owner read or write in place of a detached hold. In front of it, ends.lua, late.lua, lives.lua,
-- read_write.lua, replace.lua and token.lua define its functions.
--
-- KEYS[1] lock
-- KEYS[2] tokens
-- KEYS[3] record of the owner's hold, whose name says whether it reads or writes
-- ARGV[1] acquisition id
-- ARGV[2] lease, milliseconds
-- ARGV[3] token retention, milliseconds
-- ARGV[4] memory of ended acquisitions, milliseconds
-- ARGV[5] id of the detached hold, which is also its owner
-- ARGV[6] channel
-- ARGV[7] PUBLISH or SPUBLISH
--
-- Reply {GRANTED, token, ms left, 0}  {LOST, why, 0}: why the detached hold has ended  {STALE, 0, 0}
--       {REFUSED, 0, ms left} if the owner has a hold already
--
-- The token is greater than that of the detached hold, which ends. If the hold will end sooner than before, waiters are
-- told to ask again.
--
-- Twice: the id finds its own grant and answers with the same token. An id that was released or given up is STALE, so a
-- call that arrives late grants nothing. No call grants anything once the detached hold has ended, and no other hold ever
-- has its id.

local acquisition, detached, memory = ARGV[1], ARGV[5], tonumber(ARGV[4])
local lease, retention = tonumber(ARGV[2]), ARGV[3]
local new = field_of(KEYS[1], KEYS[3])
local old = detached .. (writes(new) and ':write' or '')
local record = record_of(KEYS[1], old, 1)

local token = if_held_by(acquisition, KEYS[1], KEYS[3], 'token')
if token then
  write_again(KEYS[3])
  return {GRANTED, tonumber(token), redis.call('PTTL', KEYS[3]), 0}
end
local how = ending(KEYS[2], acquisition)
if how then return how == FREED and {STALE, 0, 0} or {LOST, how, 0} end
token = if_held_by(detached, KEYS[1], record, 'token')
if not token then return end_as_lost(KEYS[1], KEYS[2], record, detached, memory, retention, '') end
if redis.call('HEXISTS', KEYS[1], new) == 1 then
  local left = redis.call('PTTL', KEYS[3])
  if left > 0 then return {REFUSED, 0, left} end
end

local ttl = redis.call('PTTL', record)
redis.call('DEL', record)
remember(KEYS[2], TAKEN, detached, memory, retention, '')
local last = math.max(tonumber(token), tonumber(redis.call('ZSCORE', KEYS[2], 'token') or 0))
local granted, told = next_token(KEYS[2], last, microseconds())
replace(KEYS[1], old, new, KEYS[3], lease, 'acquisition', acquisition, 'token', told, 'step', 1, 'renewal', 0)
if lease < ttl then redis.call(ARGV[7], ARGV[6], '1') end
return {GRANTED, granted, lease, 0}
