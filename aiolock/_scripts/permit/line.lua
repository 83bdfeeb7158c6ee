-- line: the way in which all scripts of a semaphore see whether a client waits; it is put in front of each of them.

-- Milliseconds until a waiter asks again, if nothing is known that would help earlier.
local LONGEST_PROBE = 30000
-- Lower scores are places in the line, which permit.lua describes.
local LINE_ENDS = '(-4100000000000000'

