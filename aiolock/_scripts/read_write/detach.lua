-- detach: give the place of a reader, or of the writer, to a detached hold, for a given time. A detached hold can be
-- adopted only with a secret, of which its id has a digest. In front of it, ends.lua, late.lua, lives.lua,
-- read_write.lua and replace.lua define its functions.
--
-- KEYS[1] lock
-- KEYS[2] tokens
-- KEYS[3] record of the hold, whose name says whether it reads or writes
-- ARGV[1] acquisition id of the holder
-- ARGV[2] id of the detached hold, which is also its owner
-- ARGV[3] time for which the detached hold lasts, milliseconds
-- ARGV[4] token retention, milliseconds
-- ARGV[5] memory of ended acquisitions, milliseconds
-- ARGV[6] ids of ended acquisitions to forget, as none of their commands can still arrive; separated by spaces
-- ARGV[7] channel
-- ARGV[8] PUBLISH or SPUBLISH
--
-- Reply {GRANTED, token, ms left}  {LOST, why, 0}  {STALE, 0, 0}  {REFUSED, 0, 0} if the writer reads, too
--
-- The token stays that of the holder. If the hold will end sooner than before, waiters are told to ask again. A writer
-- that reads would go on reading beside the adopter. Its client knows, unless another task of the same named owner has
-- just begun to read.
--
-- Twice: the second call finds the detached hold, or the remembered end of the detached hold or of the acquisition, and
-- changes nothing. If the detached hold was given up before the call arrives, the reply is STALE, and the hold never begins.

local acquisition, detached, keep = ARGV[1], ARGV[2], tonumber(ARGV[3])
local retention, memory = ARGV[4], tonumber(ARGV[5])
local old = field_of(KEYS[1], KEYS[3])
local new = detached .. (writes(old) and ':write' or '')
local record = record_of(KEYS[1], new, 1)

local token = if_held_by(detached, KEYS[1], record, 'token')
if token then
  write_again(record)
  return {GRANTED, tonumber(token), redis.call('PTTL', record)}
end
local how = ending(KEYS[2], detached)
if how then return how == FREED and {STALE, 0, 0} or {LOST, how, 0} end
token = if_held_by(acquisition, KEYS[1], KEYS[3], 'token')
if not token then return end_as_lost(KEYS[1], KEYS[2], KEYS[3], acquisition, memory, retention, ARGV[6]) end

local reads = writes(old) and redis.call('HGET', KEYS[1], owner_of(old))
if reads and left_of(KEYS[1], owner_of(old), tonumber(reads)) > 0 then return {REFUSED, 0, 0} end

local ttl = redis.call('PTTL', KEYS[3])
redis.call('DEL', KEYS[3])
remember(KEYS[2], FREED, acquisition, memory, retention, ARGV[6])
local is_dropped =
  replace(KEYS[1], old, new, record, keep, 'acquisition', detached, 'token', token, 'step', 1, 'renewal', 0)
if is_dropped or keep < ttl then redis.call(ARGV[8], ARGV[7], '1') end
return {GRANTED, tonumber(token), keep}
