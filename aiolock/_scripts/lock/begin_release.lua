-- begin_release: the part of a hand-off in front of the script of the release; begin_acquire.lua is the part behind it.
--
-- KEYS    those of the release
-- ARGV    those of the release
--
-- Reply   that of the release
--
-- Twice: as in release_clean.

local function release(KEYS, ARGV)
