-- force: frees all readers, or the writer, by force; it is put in front of the two scripts for that.

-- Whether *field* is a hold of the *kind*, which is 'read' or 'write'.
local function is_of(kind, field)
  return field ~= 'mode' and writes(field) == (kind == 'write')
end

-- Free the holds of the *kind*, and wake all waiters; returns the reply. The result is remembered under the id
-- *request*.
local function force(kind, lock, tokens, request, retention, memory, channel, publish)
  local known = ending(tokens, request)
  if known then return {APPLIED, known == FREED and 1 or 0, 0} end
  local mode = state(lock)
  if mode == 'foreign' then return {NOT_A_LOCK, 0, 0} end

  if mode == 'write' then drop_expired_writer(lock) end
  local fields, freed = redis.call('HGETALL', lock), 0
  redis.call('PEXPIRE', tokens, retention)
  for place = 1, #fields, 2 do
    local field, count = fields[place], tonumber(fields[place + 1])
    if is_of(kind, field) then
      local acquisition = redis.pcall('HGET', record_of(lock, field, 1), 'acquisition')
      if type(acquisition) == 'string' then remember(tokens, FORCED, acquisition, memory, retention, '') end
      -- While the slot moves, a record that is not here cannot be removed: it has ended, or will end by itself.
      for number = 1, math.min(count or 0, MOST_RECORDS) do redis.pcall('DEL', record_of(lock, field, number)) end
      redis.call('HDEL', lock, field)
      freed = 1
    end
  end
  remember(tokens, freed == 1 and FREED or EXPIRED, request, memory, retention, '')
  if freed == 0 then return {APPLIED, 0, 0} end
  if settle(lock) and kind == 'write' then redis.call('HSET', lock, 'mode', 'read') end
  redis.call(publish, channel, '1')
  return {APPLIED, 1, 0}
end
