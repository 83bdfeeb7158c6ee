-- field: the hold of a read-write lock that a script is about; it is put in front of scripts that grant or release a
-- hold.

-- The key of the record begins with the hash tag of the lock's keys, by Redisson's rule, and a colon.
local tag_length = string.find(KEYS[1], '{', 1, true) and #KEYS[1] or #KEYS[1] + 2
local field = string.sub(KEYS[3], tag_length + 2, -1 - #':rwlock_timeout:1')

