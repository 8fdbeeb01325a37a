-- ARGV 7: '1' to hold, '0' to trust the clock again, however far back it is. Every slot has its copy.
-- 8: the epoch that then begins: of all slots, and of no other time.
local now, epoch = 0, 0
-- After a write that needs no memory the others need none either: the clock is held however full Redis is.
redis.call('DEL', KEYS[1])
for slot = first_slot, last_slot do
  local clock = clock_of(slot)
  epoch = clock.epoch
  if ARGV[7] == '0' then
    clock.now = read_clock(key_of(slot, 'none'), ARGV[2], '', '0').now
    epoch = tonumber(ARGV[8])
  end
  -- Nobody knows the epoch of a clock that did not read: one that no node has.
  if clock.damaged then epoch = tonumber(ARGV[8]) end
  redis.call('SET', clock.key, clock_text(tonumber(ARGV[7]), epoch, clock.now))
  now = math.max(now, clock.now)
end
return { now, tonumber(ARGV[7]), epoch }
