-- Then comes this, in the scripts about one record.
-- KEYS: none, record, running, unknown. ARGV: id (32 hex digits), channel, then the script's own.
local id = ARGV[1]
local SETS = { [RUNNING] = KEYS[3], [UNKNOWN] = KEYS[4] }
local current = redis.pcall('GET', KEYS[2])

-- The value that is there, nil if there is none. A key that holds no string is answered as an empty value, which does not
-- read.
local function seen()
  if type(current) == 'table' then return { now, 0, '' } end
  return { now, 0, current }
end

-- The token and the count of what was written.
local function done(revision)
  return { now, 1, revision }
end

local function revision_of(value)
  return string.sub(value, 3, 26)
end

local function notify()
  redis.pcall('PUBLISH', ARGV[2], id)
end

local function pack(record, outcome)
  local head = string.char(FORMAT, record.state) .. record.token
    .. struct.pack('<I8', record.count) .. record.at .. record.first .. record.ttl .. record.attempt
    .. struct.pack('<I4I4', #record.details, #outcome) .. record.crc
  return head .. sum(id, head, record.details) .. record.details .. outcome
end

-- The sorted set that has the records of a state: by the end of their lease, or by when they became unknown.
local function list(state, at)
  local score = math.min(math.max(ms_of(at), 0), FAR)
  if SETS[state] then redis.call('ZADD', SETS[state], string.format('%.0f', score), id) end
end

local function unlist(state)
  if SETS[state] then redis.call('ZREM', SETS[state], id) end
end

-- Released and completed records are deleted by Redis itself, by its own clock. SET ends the expiry that the
-- record before may have had.
local function set(record, value)
  local ttl_ms = ms_of(record.at) - now
  if record.state < RELEASED or ttl_ms >= FAR then return redis.call('SET', KEYS[2], value) end
  redis.call('SET', KEYS[2], value, 'PX', string.format('%.0f', math.max(ttl_ms, 1)))
end

local function write(record, value, old_state)
  -- Without memory Redis refuses this, as it would refuse any first write. After a ZREM it refuses nothing more.
  redis.call('SET', KEYS[1], '', 'XX')
  list(record.state, record.at)
  if old_state ~= record.state then unlist(old_state) end
  set(record, value)
  return value
end
