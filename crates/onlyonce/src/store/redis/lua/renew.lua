-- ARGV 3: token, lease_ms.
local record = parse(id, current)
if not record or record.state ~= RUNNING or record.token ~= ARGV[3] then return seen() end
record.at, record.count = moment(now + tonumber(ARGV[4])), record.count + 1
return done(revision_of(write(record, pack(record, ''), RUNNING)))
