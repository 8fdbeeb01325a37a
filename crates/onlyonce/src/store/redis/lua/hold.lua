-- ARGV 7: '1' to hold, '0' to trust the clock again, however far back it is. Every slot has its copy.
-- 8: the epoch that then begins: of all slots, and of no other time. 9: the epoch of the beat, if the clock is
-- to be held in no other. Answers: now, held, the epoch of the slots.
local now, epoch = 0, 0
local beat = read_clock(BEAT, ARGV[2], '', '0')
-- Someone else trusts the clock meanwhile, and what is begun here is theirs to end.
local is_overtaken = ARGV[7] == '0' and first_slot > 0 and beat.epoch ~= tonumber(ARGV[8])
local is_told_too_late = ARGV[9] ~= '' and beat.epoch ~= tonumber(ARGV[9])
if beat.highest and (is_overtaken or is_told_too_late) then
  return { beat.wall, 0, beat.epoch }
end
-- After a write that needs no memory the others need none either: the clock is held however full Redis is.
redis.call('DEL', KEYS[1])
-- First of all: nobody holds again what is being trusted.
if ARGV[7] == '0' and first_slot == 0 then
  redis.call('SET', BEAT, clock_text(0, tonumber(ARGV[8]), beat.wall))
end
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
