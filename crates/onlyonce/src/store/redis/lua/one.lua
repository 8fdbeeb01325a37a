-- The start of the scripts about one record.
-- KEYS: record, clock, running, unknown, ended, none. ARGV: id, wall, epoch, floor, channel, then their own.
local refusal = not_primary(KEYS[6])
if refusal then return refusal end
local id = ARGV[1]
local clock = read_clock(KEYS[2], ARGV[2], ARGV[3], ARGV[4])
local now = clock.now
local current = redis.pcall('GET', KEYS[1])
local ABSENT, THERE, UNREADABLE, DONE, DELETED = 0, 1, 2, 3, 4

local function answer(kind, a, b)
  return { now, clock.held, clock.epoch, kind, a, b }
end

local function seen()
  if not current then return answer(ABSENT) end
  if type(current) ~= 'string' then return answer(UNREADABLE) end
  return answer(THERE, current)
end

local function tell()
  redis.pcall('PUBLISH', ARGV[5], id)
end

local function unlist(state, kept)
  local set = SET_OF[state]
  if set and set ~= kept then redis.call('ZREM', KEYS[set + 2], id) end
end

local function write(record, outcome, old_state)
  keep_clock(clock)
  local set = SET_OF[record.state]
  redis.call('ZADD', KEYS[set + 2], score(record), id)
  if old_state then unlist(old_state, set) end
  local value = pack(id, record, outcome)
  redis.call('SET', KEYS[1], value)
  return value
end
