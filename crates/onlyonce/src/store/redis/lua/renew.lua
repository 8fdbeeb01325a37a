-- ARGV 3: token, lease_ms.
if not current then return answer(ABSENT) end
local record = parse(id, current)
if not record then return answer(UNREADABLE) end
if record.state ~= RUNNING or record.token ~= ARGV[3] then return answer(ABSENT) end
record.at, record.count = moment(now + tonumber(ARGV[4])), record.count + 1
write(record, '', RUNNING)
return answer(DONE)
