-- ARGV 3: guard ('owner' or 'unchanged'), its token, its states as bits, its count (8 bytes);
-- 7: next ('absent', 'running', 'unknown', 'released', 'completed', 'replaced'), its moment (8 bytes or ''),
-- its new token or ''; 10: outcome, crc; 12: not_after, lease_ms, first (8 bytes or ''), ttl, attempt, details.
local guard, guard_token, states, guard_count = ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6]
local to, to_at, to_token = ARGV[7], ARGV[8], ARGV[9]
local outcome, crc = ARGV[10], ARGV[11]
local STATES = {
  running = RUNNING, unknown = UNKNOWN, released = RELEASED, completed = COMPLETED, replaced = COMPLETED,
}

if not current then
  if to == 'absent' then return answer(DELETED) end
  return seen()
end
local record = parse(id, current)
if not record then return answer(UNREADABLE) end

local function holds()
  if record.token ~= guard_token then return false end
  if guard == 'owner' then return bit.band(states, bit.lshift(1, record.state - 1)) ~= 0 end
  return struct.pack('<I8', record.count) == guard_count
end

local function in_time()
  return to ~= 'running' or now <= tonumber(ARGV[12])
end

-- A write that names a revision under the same token made a later one.
local function not_before()
  return guard == 'owner' or record.token ~= guard_token
    or record.count > (struct.unpack('<I8', guard_count))
end

local function is_outcome()
  if record.state ~= STATES[to] then return false end
  if to == 'running' then return record.attempt == ARGV[16] end
  if to == 'completed' then return record.crc == crc and outcome_of(record) == outcome end
  if to == 'replaced' then
    return record.at == to_at and record.details == ARGV[17] and outcome_of(record) == outcome
  end
  return to_at == '' or to_at == record.at
end

local function token_after()
  if to_token ~= '' then return to_token end
  return guard_token
end

local function done()
  return answer(DONE, record.token, struct.pack('<I8', record.count))
end

if record.token == token_after() and is_outcome() and not_before() then
  notify()
  return done()
end
if not (holds() and in_time()) then return seen() end

local old_state = record.state
if to == 'absent' then
  unlist(old_state)
  redis.call('DEL', KEYS[2])
  notify()
  return answer(DELETED)
end
if to == 'running' then
  record = {
    token = to_token, count = 1, at = moment(now + tonumber(ARGV[13])), first = ARGV[14],
    ttl = ARGV[15], attempt = ARGV[16], details = ARGV[17],
  }
  if record.first == '' then record.first = moment(now) end
elseif to == 'replaced' then
  record = {
    token = to_token, count = 1, at = to_at, first = ARGV[14], ttl = ARGV[15], attempt = ARGV[16], details = ARGV[17],
  }
else
  if to_token ~= '' then record.token, record.count = to_token, 1 else record.count = record.count + 1 end
  record.at = to_at
  if to_at == '' then
    if to == 'unknown' then record.at = moment(now) else record.at = moment(now + ms_of(record.ttl)) end
  end
end
record.state, record.crc = STATES[to], crc
write(record, outcome, old_state)
notify()
return done()
