-- Shared by every script of the store. A value in Redis is a head, then details, then outcome.
-- The head, by its bytes: 1 format, 2 state, 3-18 token, 19-26 count, 27-34 at (lease_until, since or
-- expires_at), 35-42 first_claimed_at, 43-50 ttl_ms, 51-54 attempt, 55-58 bytes of details,
-- 59-62 bytes of outcome, 63-66 crc of outcome, 67-74 sum over id, head and details.
-- Every error comes before the SET or DEL of the record: an error reply means that it was not written.
local FORMAT, HEAD, CLOCK_STEP_MS, CLOCK_JUMP_MS = 1, 74, 1000, 60000
local RUNNING, UNKNOWN, RELEASED, COMPLETED = 1, 2, 3, 4
-- Lua counts in doubles. A time beyond them is the end of time.
local FAR, LAST = 9007199254740992, '\255\255\255\255\255\255\255\127'

-- A write that changes nothing, because the key is never there. A replica refuses it, so that nobody reads
-- there what is old. It is one that a server without memory refuses too: had it passed, the ones after it
-- would pass as well, however much they need.
local function not_primary(key)
  local answer = redis.pcall('SET', key, '', 'XX')
  if type(answer) == 'table' and answer.err and string.find(answer.err, 'READONLY', 1, true) then
    return answer
  end
end

local function moment(ms)
  if ms >= FAR then return LAST end
  return struct.pack('<i8', ms)
end

local function ms_of(moment8)
  return (struct.unpack('<i8', moment8))
end

-- The time of a slot. It never runs backward, but for what `hold` trusts again: the slot keeps the
-- highest time, in steps, and each node the highest that it was told, with the epoch that it belongs to.
-- A clock that does not read is held; so is one that is far behind a time that was seen: it had jumped, or it
-- was set back, and nobody knows which of the two was right.
local function read_clock(key, wall, epoch, floor)
  local now = tonumber(wall)
  if not now then
    local time = redis.call('TIME')
    now = time[1] * 1000 + math.floor(time[2] / 1000)
  end
  local clock = { key = key, wall = now, now = now, held = 0, kept = 0, epoch = 0 }
  local kept = redis.call('GET', key)
  if kept then
    local held, kept_epoch, highest = string.match(kept, '^([01]) (%d+) (%-?%d+)$')
    if not held then
      clock.held, clock.damaged = 1, true
      return clock
    end
    clock.kept, clock.epoch, clock.highest = tonumber(held), tonumber(kept_epoch), tonumber(highest)
    clock.now = math.max(now, clock.highest)
  end
  if tonumber(epoch) == clock.epoch then
    clock.now = math.max(clock.now, tonumber(floor))
  end
  clock.held = clock.kept
  if clock.now - clock.wall > CLOCK_JUMP_MS then clock.held = 1 end
  return clock
end

local function clock_text(held, epoch, highest)
  return string.format('%.0f %.0f %.0f', held, epoch, highest)
end

local function keep_clock(clock)
  if clock.damaged or (clock.highest and clock.now < clock.highest + CLOCK_STEP_MS) then return end
  redis.pcall('SET', clock.key, clock_text(clock.kept, clock.epoch, clock.now))
end

local function sum(id, head, details)
  return string.sub(redis.sha1hex(id .. head .. details), 1, 8)
end

-- The record in a value; nil if it does not read.
local function parse(id, value)
  if type(value) ~= 'string' or #value < HEAD or string.byte(value, 1) ~= FORMAT then return nil end
  local details_bytes, outcome_bytes = struct.unpack('<I4I4', value, 55)
  if #value ~= HEAD + details_bytes + outcome_bytes then return nil end
  local details = string.sub(value, HEAD + 1, HEAD + details_bytes)
  if string.sub(value, 67, HEAD) ~= sum(id, string.sub(value, 1, 66), details) then return nil end
  return {
    state = string.byte(value, 2),
    token = string.sub(value, 3, 18),
    count = (struct.unpack('<I8', value, 19)),
    at = string.sub(value, 27, 34),
    first = string.sub(value, 35, 42),
    ttl = string.sub(value, 43, 50),
    attempt = string.sub(value, 51, 54),
    crc = string.sub(value, 63, 66),
    details = details,
    value = value,
  }
end

local function outcome_of(record)
  return string.sub(record.value, HEAD + #record.details + 1)
end

local function pack(id, record, outcome)
  local head = string.char(FORMAT, record.state) .. record.token
    .. struct.pack('<I8', record.count) .. record.at .. record.first .. record.ttl .. record.attempt
    .. struct.pack('<I4I4', #record.details, #outcome) .. record.crc
  return head .. sum(id, head, record.details) .. record.details .. outcome
end

local function is_expired(record, now)
  return record.state >= RELEASED and record.at ~= LAST and ms_of(record.at) <= now
end

-- Which of the three sorted sets lists a state: running, unknown, ended. Ended ones by their expiry.
local SET_OF = { 1, 2, 3, 3 }

local function score(record)
  if record.state < RELEASED then return '0' end
  if record.at == LAST then return '+inf' end
  return string.format('%.0f', ms_of(record.at))
end
