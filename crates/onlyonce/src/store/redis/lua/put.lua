-- Replaces or deletes the record, if it is exactly as it was read.
-- ARGV 3: its token and count when it was read (24 bytes), not_after, the new value; '' deletes the record.
local read, value = ARGV[3], ARGV[5]
local record = parse(id, current)
if not record or revision_of(current) ~= read or now > tonumber(ARGV[4]) then return seen() end
if value == '' then
  unlist(record.state)
  redis.call('DEL', KEYS[2])
  notify()
  -- The revision of a deletion has the highest count.
  return done(string.sub(read, 1, 16) .. string.rep('\255', 8))
end
write(split(value), value, record.state)
notify()
return done(revision_of(value))
