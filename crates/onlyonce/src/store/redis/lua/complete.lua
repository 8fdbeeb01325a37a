-- Writes the final outcome of an owner over its record. This is the only swap whose guard the script judges: it is one in
-- two of all writes, and as a put it would be a load first.
-- ARGV 3: token, states as bits, outcome, its crc.
local record = parse(id, current)
if not record or record.token ~= ARGV[3] or not has(ARGV[4], record.state) then return seen() end
local old_state = record.state
record.state, record.count, record.crc = COMPLETED, record.count + 1, ARGV[6]
record.at = moment(now + ms_of(record.ttl))
local value = write(record, pack(record, ARGV[5]), old_state)
notify()
return done(revision_of(value))
