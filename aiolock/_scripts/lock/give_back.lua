-- give_back: what the scripts share that give a lock back; it is put in front of each of them.

-- Set what is *left* of the hold count of an *acquisition* that holds the lock: true if that frees it, false if not; nil
-- if the acquisition does not hold the lock.
local function give_back(key, tokens, owner, acquisition, step, left, memory, retention, others)
  local last = if_held_by(acquisition, key, 'aiolock:step')
  if not last then return nil end
  if left == 0 then
    redis.call('DEL', key)
    remember(tokens, FREED, acquisition, memory, retention, others)
  elseif step > tonumber(last) then
    redis.call('PEXPIRE', tokens, retention) -- First: a server out of memory refuses a first write that takes memory.
    redis.call('HSET', key, owner, left, 'aiolock:step', step)
  end
  return left == 0
end

