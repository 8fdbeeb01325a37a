-- ARGV 3: token, not_after, lease_ms, ttl (8 bytes), attempt (4 bytes), details.
if not current and now <= tonumber(ARGV[4]) then
  current = write({
    state = RUNNING, token = ARGV[3], count = 1, at = moment(now + tonumber(ARGV[5])), first = moment(now),
    ttl = ARGV[6], attempt = ARGV[7], details = ARGV[8], crc = '\0\0\0\0',
  }, '')
  notify()
end
return seen()
