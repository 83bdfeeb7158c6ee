-- release_later: release the last hold, and leave a field without an owner in the lock's place for some time: the field
-- keeps the lock from others (`at_least`), or is the result of a `once`. In front of it, ends.lua, late.lua, lives.lua,
-- lock.lua and replace.lua define its functions.
--
-- KEYS[1] lock
-- KEYS[2] tokens
-- KEYS[3] old result, which gets the field, too, for longer; optional
-- ARGV[1] acquisition id
-- ARGV[2] token retention, milliseconds; at least the time for which the field stays
-- ARGV[3] memory of ended acquisitions, milliseconds
-- ARGV[4] ids of ended acquisitions to forget, as none of their commands can still arrive; separated by spaces
-- ARGV[5] time for which the field stays, milliseconds
-- ARGV[6] name of the field
-- ARGV[7] value of the field
-- ARGV[8] token of the grant, if the field may be left even after the end of the lease; else ''
-- ARGV[9] time for which the field stays in the old result, milliseconds; '' if there is no such key
-- ARGV[10] channel
-- ARGV[11] PUBLISH or SPUBLISH
--
-- Reply {APPLIED, receivers of the unlock message, 0}  {LOST, why, 0}
--
-- After the message, waiters ask again, and learn the time for which the field stays: it may be less than the lease was.
--
-- After the end of the lease, the field is left only if the lock is free and the last token is that of this grant: then the
-- lock was granted to nobody else. Before, a renewal may have found no lock, and noted that the acquisition has expired.
--
-- Twice: as in release. The field has no owner, so the second call finds the end of the acquisition, and does not prolong the
-- field. A late call for an earlier acquisition finds another id in the lock, or a later token, and changes nothing.

local acquisition, token = ARGV[1], tonumber(ARGV[8])
local how = ending(KEYS[2], acquisition)

-- Whether the lease has ended, and nobody was granted the lock since.
local function is_vacant()
  if not token or (how and how ~= EXPIRED) or state(KEYS[1]) ~= 'free' then return false end
  return tonumber(redis.call('ZSCORE', KEYS[2], 'token') or 0) == token
end

if if_held_by(acquisition, KEYS[1], 'aiolock:step', '1') or is_vacant() then
  replace_fields(KEYS[1], ARGV[5], ARGV[6], ARGV[7])
  remember(KEYS[2], FREED, acquisition, tonumber(ARGV[3]), ARGV[2], ARGV[4])
  if KEYS[3] then
    redis.call('HSET', KEYS[3], ARGV[6], ARGV[7])
    redis.call('PEXPIRE', KEYS[3], ARGV[9])
  end
  return {APPLIED, redis.call(ARGV[11], ARGV[10], '0'), 0}
end

if how == FREED then
  write_again(KEYS[2])
  return {APPLIED, 0, 0}
end
return end_as_lost(KEYS[1], KEYS[2], acquisition, tonumber(ARGV[3]), ARGV[2], ARGV[4])
