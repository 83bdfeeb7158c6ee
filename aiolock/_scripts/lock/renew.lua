-- renew: lengthen the life of locks that still belong to their acquisition. In front of it, lives.lua and lock.lua
-- define its functions.
--
-- KEYS    lock and tokens of each lock, one after the other; in a cluster, of one
-- ARGV[1] token retention, milliseconds
-- ARGV[2] memory of ended acquisitions, milliseconds
-- ARGV    then, for each lock: acquisition id; number of this renewal, or '' for none; lease, milliseconds
--
-- Reply   for each lock {GRANTED, token, ms left}  {LOST, why, 0}
--
-- Twice: a renewal sets a TTL, never adds to one, never shortens one and never creates a key; only a later
-- number does so, so a call that arrives late or again changes nothing. The reply has the present TTL.
--
-- A detached hold has no numbers, as the bearers of its ticket share no clock: a call that arrives late lets it live
-- longer than was asked for.

local retention, memory = ARGV[1], tonumber(ARGV[2])

local function renew(key, tokens, acquisition, number, lease)
  local last = if_held_by(acquisition, key, 'aiolock:renewal', '0')
  if not last then return end_as_lost(key, tokens, acquisition, memory, retention, '') end
  if number == '' or tonumber(number) > tonumber(last) then
    redis.call('PEXPIRE', tokens, retention)
    redis.call('HSET', key, 'aiolock:renewal', number == '' and last or number)
    lengthen(key, tonumber(lease))
  else
    write_again(key)
  end
  return {GRANTED, tonumber(redis.call('HGET', key, 'aiolock:token')), redis.call('PTTL', key)}
end

local replies = {}
for i = 1, #KEYS / 2 do
  replies[i] = renew(KEYS[2 * i - 1], KEYS[2 * i], ARGV[3 * i], ARGV[3 * i + 1], ARGV[3 * i + 2])
end
return replies
