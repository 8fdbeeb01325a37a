-- Deletes an entry, and for so long keeps nodes that read the record before from writing it again.
-- KEYS: entry. ARGV: ms.
redis.call('SET', KEYS[1], 'oF\0', 'PX', ARGV[1])
return 1
