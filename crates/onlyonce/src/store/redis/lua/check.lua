-- A check value: a small text under a name, in a hash.
-- KEYS: none, the hash. ARGV: the name; '1' if there is a `from`, and the `from`; '1' if there is a `to`, and the `to`.
-- Answers with the text that is kept afterwards, or nil.
local kept = redis.call('HGET', KEYS[2], ARGV[1])
local from = ARGV[2] == '1' and ARGV[3]
if ARGV[4] == '1' and kept == from then
  redis.call('HSET', KEYS[2], ARGV[1], ARGV[5])
  kept = ARGV[5]
end
return kept
