-- ARGV 7: after (an id of the first slot, or ''), limit, states as bits, bytes_max.
-- Answers: now, held, epoch, is_full, the last id that was looked at, then id and value in turn.
local after, limit, states, room = ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
local now, held, epoch, full, last = 0, 0, 0, 0, ''
local found = {}

-- As the sorted sets compare. Strings of Lua compare by the server's locale.
local function less(a, b)
  for i = 1, 16 do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return false
end

local function wants(state)
  return bit.band(states, bit.lshift(1, state - 1)) ~= 0
end

local function listed(slot, from)
  local ids = {}
  local min = '-'
  if from ~= '' then min = '(' .. from end
  for state, name in pairs({ [RUNNING] = 'running', [UNKNOWN] = 'unknown' }) do
    if wants(state) then
      local part = redis.call('ZRANGEBYLEX', key_of(slot, name), min, '+', 'LIMIT', 0, limit)
      for _, id in ipairs(part) do ids[#ids + 1] = id end
    end
  end
  if wants(RELEASED) or wants(COMPLETED) then
    for _, id in ipairs(redis.call('ZRANGE', key_of(slot, 'ended'), 0, -1)) do
      if from == '' or less(from, id) then ids[#ids + 1] = id end
    end
  end
  table.sort(ids, less)
  return ids
end

local function scan_slot(slot, from)
  local before
  for _, id in ipairs(listed(slot, from)) do
    if limit <= 0 or room <= 0 then return true end
    if id ~= before then
      local value = redis.pcall('GET', key_of(slot, hex(id)))
      local record = parse(id, value)
      if record and wants(record.state) then
        found[#found + 1], found[#found + 2] = id, value
        limit, room = limit - 1, room - #value
      end
      before, last = id, id
    end
  end
  return limit <= 0 or room <= 0
end

for slot = first_slot, last_slot do
  local clock = clock_of(slot)
  now, held, epoch = math.max(now, clock.now), math.max(held, clock.held), clock.epoch
  if full == 0 then
    local from = ''
    if slot == first_slot then from = after end
    if scan_slot(slot, from) then full = 1 end
  end
end
local answer = { now, held, epoch, full, last }
for _, part in ipairs(found) do answer[#answer + 1] = part end
return answer
