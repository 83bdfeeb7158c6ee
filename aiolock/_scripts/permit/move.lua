-- move: moves permits from one acquisition to another; it is put in front of the scripts that detach and adopt.

-- Move *number* permits of the acquisition *from* to the acquisition *to*, with the new expiry *expires*.
local function move(permits, from, to, number, expires)
  for i = 1, number do
    if redis.call('ZSCORE', permits, permit(from, i)) then
      redis.call('ZADD', permits, string.format('%.0f', expires), permit(to, i))
      redis.call('ZREM', permits, permit(from, i))
    end
  end
end

