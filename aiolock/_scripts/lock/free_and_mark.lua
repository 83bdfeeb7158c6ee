-- free_and_mark: frees the lock if the acquisition holds it, and moves the mark of its client to this release; it is put in
-- front of the rest of the clean releases.

-- One of SELDOM_NOTED releases removes old ends, even if the client has a mark already. The number is a prime: the numbers
-- of all releases of one name may be odd, for example.
local SELDOM_NOTED = 127

local freed = redis.pcall('HGET', KEYS[1], 'aiolock:acquisition') == ARGV[1]
local is_noted = false
if freed then
  redis.call('DEL', KEYS[1])
  -- One call moves an existing mark. The grant has given the set, which contains the mark, a life that is long enough.
  is_noted = redis.call('ZADD', KEYS[2], 'XX', 'CH', ARGV[2], ARGV[3]) == 1 and ARGV[2] % SELDOM_NOTED ~= 0
end

