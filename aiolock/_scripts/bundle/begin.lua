-- begin: the part before a script that makes several of its calls one command; end.lua is the part after it.
--
-- KEYS    those of the script
-- ARGV    those of the script
--
-- Reply   that of the script
--
-- Twice: as in the script.

local function one(KEYS, ARGV)
