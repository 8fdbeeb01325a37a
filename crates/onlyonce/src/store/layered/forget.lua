-- Forgets an entry, and for so long keeps anyone from writing it who read the record before.
-- KEYS: entry. ARGV: ms.
redis.call('SET', KEYS[1], 'oF\0', 'PX', ARGV[1])
return 1
