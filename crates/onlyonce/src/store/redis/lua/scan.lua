-- A page of records. KEYS: none, then the sorted set to list, or nothing: then all keys of the store are listed.
-- ARGV: prefix, states as bits, limit, bytes_max; then where the last page ended: a number (the score in the set, or
-- the cursor of SCAN), and the first place at that number which is not listed yet; then what ids must begin with, where
-- all keys are listed.
-- Answers: now, 1 if there is more, the number and the place where to go on, and a list of id and value in turn.
local prefix, states, limit, room = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local number, place = ARGV[5], tonumber(ARGV[6])
-- So many ids are asked for at a time, and so many times when the answers have nothing that is wanted.
local BATCH, BATCHES_MAX = 100, 10
local found = {}

-- The place of an id among those that share a number: its first 52 bits, which a double holds. Ids are digests; two
-- with the same place and the same number do not meet.
local function place_of(id)
  return tonumber(string.sub(id, 1, 13), 16)
end

local function is_full()
  return #found >= 2 * limit or room <= 0
end

-- Adds the record of `id`, if it is wanted and can be read; whether there is anything.
local function add(id)
  local value = redis.pcall('GET', prefix .. ':' .. id)
  local record = parse(id, value)
  if record and has(states, record.state) then
    found[#found + 1] = id
    found[#found + 1] = value
    room = room - #value
  end
  return value
end

-- In the order of their scores: not by ZSCAN, which would leave out records when others go between two pages. An id
-- without a record (deleted by hand, or evicted) is removed.
local function list_set(set)
  local start, start_place, gone = number, place, {}
  local offset, has_more = 0, false
  repeat
    local part = redis.call('ZRANGEBYSCORE', set, start, '+inf', 'WITHSCORES', 'LIMIT', offset, BATCH)
    for i = 1, #part, 2 do
      local id, score = part[i], tonumber(part[i + 1])
      has_more = is_full()
      if has_more then break end
      if score > tonumber(start) or place_of(id) >= start_place then
        if not add(id) then gone[#gone + 1] = id end
        number, place = string.format('%.0f', score), place_of(id) + 1
      end
    end
    offset = offset + BATCH
  until has_more or #part == 0
  for _, id in ipairs(gone) do redis.call('ZREM', set, id) end
  return has_more
end

-- In the order of SCAN, and of ids within a batch of it.
local function list_keys()
  local pattern = prefix .. ':' .. ARGV[7] .. string.rep('[0-9a-f]', 32 - #ARGV[7])
  for _ = 1, BATCHES_MAX do
    local part = redis.call('SCAN', number, 'MATCH', pattern, 'COUNT', BATCH)
    local ids = {}
    for i, key in ipairs(part[2]) do ids[i] = string.sub(key, -32) end
    table.sort(ids)
    for _, id in ipairs(ids) do
      if place_of(id) >= place then
        if is_full() then return true end
        add(id)
        place = place_of(id) + 1
      end
    end
    number, place = part[1], 0
    if number == '0' then return false end
  end
  return true
end

local has_more
if KEYS[2] then has_more = list_set(KEYS[2]) else has_more = list_keys() end
return { now, has_more and 1 or 0, number, place, found }
