-- Writes a completed entry, unless there is a newer one, the mark of a deleted one, or one of another version.
-- KEYS: entry. ARGV: deadline in ms of this server's clock, completed_at, ms to live, entry.
-- An entry is 'oF', version, completed_at (8 bytes), token, mac, record. Version 0 is the mark of a deleted one.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if now > tonumber(ARGV[1]) then return { now, 0 } end
local old = redis.pcall('GET', KEYS[1])
if type(old) == 'string' and string.sub(old, 1, 2) == 'oF' then
  if string.byte(old, 3) ~= 1 then return { now, 0 } end
  if #old >= 11 and struct.unpack('<i8', old, 4) >= tonumber(ARGV[2]) then return { now, 0 } end
end
redis.call('SET', KEYS[1], ARGV[4], 'PX', ARGV[3])
return { now, 1 }
