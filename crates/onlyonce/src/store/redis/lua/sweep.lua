-- ARGV 7: limit; 8: the latest time that the caller takes for true. Answers: deleted, whether more had expired.
local limit, deleted, more = tonumber(ARGV[7]), 0, 0
-- What does not read is not deleted, and is not in the way either: it is looked at again later.
local AGAIN_MS = 86400000

-- Whether it was deleted. A set that says otherwise than the record is put right.
local function sweep_id(slot, ended, id, now)
  local key = key_of(slot, hex(id))
  local value = redis.pcall('GET', key)
  local record = parse(id, value)
  if record and is_expired(record, now) then
    redis.call('ZREM', ended, id)
    redis.call('DEL', key)
    return true
  end
  if not value or (record and record.state < RELEASED) then
    redis.call('ZREM', ended, id)
  elseif record then
    redis.call('ZADD', ended, score(record), id)
  else
    redis.call('ZADD', ended, string.format('%.0f', now + AGAIN_MS), id)
  end
  return false
end

for slot = first_slot, last_slot do
  local clock = clock_of(slot)
  if clock.held == 0 and clock.now <= tonumber(ARGV[8]) then
    local ended = key_of(slot, 'ended')
    local until_now = string.format('%.0f', clock.now)
    local ids = redis.call('ZRANGEBYSCORE', ended, '-inf', until_now, 'LIMIT', 0, limit - deleted + 1)
    for _, id in ipairs(ids) do
      if deleted >= limit then
        more = 1
      elseif sweep_id(slot, ended, id, clock.now) then
        deleted = deleted + 1
      end
    end
  end
end
return { deleted, more }
