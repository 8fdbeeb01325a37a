-- The start of the scripts about a range of slots. Their keys share the hash tag of their slot.
-- KEYS: none. ARGV: prefix, wall, epoch, floor, first slot, last slot, then their own.
local refusal = not_primary(KEYS[1])
if refusal then return refusal end
local prefix, first_slot, last_slot = ARGV[1], tonumber(ARGV[5]), tonumber(ARGV[6])

local function key_of(slot, name)
  return prefix .. ':{' .. string.format('%d', slot) .. '}:' .. name
end

-- Of the whole store, in its first slot.
local BEAT = key_of(0, 'beat')

local function hex(id)
  return (string.gsub(id, '.', function(c) return string.format('%02x', string.byte(c)) end))
end

local function clock_of(slot)
  return read_clock(key_of(slot, 'clock'), ARGV[2], ARGV[3], ARGV[4])
end
