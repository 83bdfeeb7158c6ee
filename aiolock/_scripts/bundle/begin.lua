-- begin: what stands in front of a script of which several calls are made as one command; end.lua is behind it.
--
-- KEYS    those of the script
-- ARGV    those of the script
--
-- Reply   that of the script
--
-- Twice: as the script says.

local function one(KEYS, ARGV)
