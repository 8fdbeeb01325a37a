-- ARGV 3: the record without its times, not_after, lease_ms.
if not current and now <= tonumber(ARGV[4]) then
  local record = split(ARGV[3])
  record.at, record.first = moment(now + tonumber(ARGV[5])), moment(now)
  current = write(record, pack(record, ''))
  notify()
end
return seen()
