-- begin_acquire: the part of a hand-off in front of the script of the acquire; hand_off.lua is the part behind it.
--
-- KEYS    those of the acquire
-- ARGV    those of the acquire
--
-- Reply   that of the acquire
--
-- Twice: as in acquire.

end

local function acquire(KEYS, ARGV)
