-- renew: lengthen the life of holds that still belong to their acquisition. In front of it, lives.lua and
-- read_write.lua define its functions.
--
-- KEYS    lock, tokens and record of each hold, one after the other; in a cluster, of one
-- ARGV[1] token retention, milliseconds
-- ARGV[2] memory of ended acquisitions, milliseconds
-- ARGV    then, for each hold: acquisition id; number of this renewal, or '' for none; lease, milliseconds
-- ARGV    last: PUBLISH or SPUBLISH
--
-- Reply   for each hold {GRANTED, token, ms left}  {LOST, why, 0}
--
-- Twice: a renewal sets a TTL, never adds to one, never shortens one and never creates a key; only a later number does
-- so, hence a call that arrives late or again changes nothing. The reply has the present TTL. An expired writer is removed
-- once, with one message to the waiters.
--
-- A detached hold has no numbers, as the bearers of its ticket share no clock: a call that arrives late lets it live
-- longer than was asked for.

local retention, memory = ARGV[1], tonumber(ARGV[2])

local function renew(lock, tokens, record, acquisition, number, lease)
  local last = if_held_by(acquisition, lock, record, 'renewal')
  if not last then return end_as_lost(lock, tokens, record, acquisition, memory, retention, '') end
  if number == '' or tonumber(number) > tonumber(last) then
    redis.call('PEXPIRE', tokens, retention)
    redis.call('HSET', record, 'renewal', number == '' and last or number)
    lengthen(record, tonumber(lease))
    lengthen(lock, tonumber(lease))
    -- This is the first message about the expired writer.
    if drop_expired_writer(lock) then redis.call(ARGV[#ARGV], channel_of(lock), '1') end
  else
    write_again(record)
  end
  return {GRANTED, tonumber(redis.call('HGET', record, 'token')), redis.call('PTTL', record)}
end

local replies = {}
for i = 1, #KEYS / 3 do
  replies[i] = renew(KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i], ARGV[3 * i], ARGV[3 * i + 1], ARGV[3 * i + 2])
end
return replies
