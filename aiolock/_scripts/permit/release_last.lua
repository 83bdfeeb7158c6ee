-- release_last: releases permits at once if they have not expired; it is put in front of the rest of release, which handles
-- all other cases. A holder of permits is never in the line.

do
  local time = redis.call('TIME')
  local expires = redis.pcall('ZSCORE', KEYS[2], ARGV[1] .. '#1')
  if type(expires) == 'string' and tonumber(expires) > math.floor(time[1] * 1000 + time[2] / 1000)
      and number_of(redis.pcall('GET', KEYS[1])) then
    local taken = 0
    for number = 1, ARGV[5] do taken = taken + redis.call('ZREM', KEYS[2], ARGV[1] .. '#' .. number) end
    local available = redis.call('INCRBY', KEYS[1], taken)
    remember(KEYS[3], FREED, ARGV[1], ARGV[3], ARGV[2], ARGV[4], time)
    return {APPLIED, available < 0 and 0 or redis.call(ARGV[7], ARGV[6], available), 0}
  end
end

