-- hand_off: a clean release, and behind it the acquire of the same lock by the same client, as one command. In front of it,
-- replace_holder.lua answers if one acquisition can take the place of the other; then no message is published, because no
-- waiter could get the lock in between.
--
-- KEYS[1] lock
-- KEYS[2] tokens
-- KEYS    these, for each of the two
-- ARGV[1] owner that acquires
-- ARGV[2] its acquisition id
-- ARGV[3] its step
-- ARGV[4] hold count that it will have
-- ARGV[5] its lease, milliseconds
-- ARGV[6] token retention, milliseconds
-- ARGV    the memory of ended acquisitions, as in acquire, and all arguments of the release
--
-- Reply {that of the release, that of the acquire}; an error for a call that the server refused
--
-- Twice: as in each of the two, in this order. After the first copy the released acquisition has the lock no more, so that
-- replace_holder.lua does nothing.

end

return {try(release, KEYS, {unpack(ARGV, 8, 14)}), try(acquire, KEYS, {unpack(ARGV, 1, 7)})}
