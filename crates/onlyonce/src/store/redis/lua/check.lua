-- A check value: a small text under a name, in a hash of the first slot.
-- KEYS: the hash, none. ARGV: the name; '1' if there is a `from`, and it; '1' if there is a `to`, and it.
-- Answers the text that is kept then, or nil.
local refusal = not_primary(KEYS[2])
if refusal then return refusal end
local kept = redis.call('HGET', KEYS[1], ARGV[1])
local from = ARGV[2] == '1' and ARGV[3]
if ARGV[4] == '1' and kept == from then
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[5])
  kept = ARGV[5]
end
return kept
