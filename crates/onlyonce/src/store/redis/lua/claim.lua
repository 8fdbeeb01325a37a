-- ARGV 6: token, not_after, lease_ms, ttl (8 bytes), attempt (4 bytes), details.
if not current and now <= tonumber(ARGV[7]) then
  current = write({
    state = RUNNING, token = ARGV[6], count = 1, at = moment(now + tonumber(ARGV[8])), first = moment(now),
    ttl = ARGV[9], attempt = ARGV[10], details = ARGV[11], crc = '\0\0\0\0',
  }, '')
  tell()
end
return seen()
