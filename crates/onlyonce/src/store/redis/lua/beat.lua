-- The beat is the last time at which a node trusted the clock, in the shape of a slot's clock.
-- ARGV 7: '1' if this node trusts it; 8: the latest time that it takes for true; 9: the epoch that it knows.
-- Answers: now, the epoch of the beat, how far the clock is ahead of it.
local beat = read_clock(BEAT, ARGV[2], '', '0')
local epoch, ahead = beat.epoch, 0

-- Whatever was written has left the clock of its slot.
local function is_used()
  for slot = first_slot, last_slot do
    if redis.call('EXISTS', key_of(slot, 'clock')) == 1 then return true end
  end
end

if beat.highest then
  ahead = beat.wall - beat.highest
else
  -- It was lost, or there never was one: the epoch is still the same.
  epoch = tonumber(ARGV[9])
  if is_used() then ahead = FAR end
end
if ARGV[7] == '1' and beat.wall <= tonumber(ARGV[8]) then
  -- After a write that needs no memory this needs none either. Where nothing is written it is still a look.
  redis.pcall('DEL', KEYS[1])
  redis.pcall('SET', BEAT, clock_text(0, epoch, beat.now))
end
return { beat.wall, epoch, ahead }
