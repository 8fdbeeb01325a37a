-- Every script of the store begins with this. KEYS[1] is a key that never exists.
--
-- The value of a record is a head, then details, then the outcome. The head, by its bytes: 1 format, 2 state,
-- 3-18 token, 19-26 count, 27-34 at (lease_until, since or expires_at), 35-42 first_claimed_at, 43-50 ttl_ms,
-- 51-54 attempt, 55-58 bytes of details, 59-62 bytes of outcome, 63-66 crc of outcome, 67-74 sum over id, head
-- and details. `record_value.rs` has the same layout.
--
-- Every error is raised before the SET or DEL of the record: an error reply means that the record is unchanged.
local FORMAT, HEAD = 1, 74
local RUNNING, UNKNOWN, RELEASED, COMPLETED = 1, 2, 3, 4
-- Lua counts in doubles. A time that they do not hold exactly is the end of time.
local FAR, LAST = 9007199254740992, '\255\255\255\255\255\255\255\127'

-- A write that changes nothing, because the key does not exist. A replica refuses it: nobody shall read old
-- records there.
local write_nothing = redis.pcall('SET', KEYS[1], '', 'XX')
if type(write_nothing) == 'table' and string.find(write_nothing.err or '', 'READONLY', 1, true) then
  return write_nothing
end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function moment(ms)
  if ms >= FAR then return LAST end
  return struct.pack('<i8', ms)
end

local function ms_of(moment8)
  return (struct.unpack('<i8', moment8))
end

local function sum(id, head, details)
  return string.sub(redis.sha1hex(id .. head .. details), 1, 8)
end

-- Whether a set of states, as bits, has this one.
local function has(states, state)
  return bit.band(tonumber(states), bit.lshift(1, state - 1)) ~= 0
end

-- The record in a value that we have made.
local function split(value)
  return {
    state = string.byte(value, 2),
    token = string.sub(value, 3, 18),
    count = (struct.unpack('<I8', value, 19)),
    at = string.sub(value, 27, 34),
    first = string.sub(value, 35, 42),
    ttl = string.sub(value, 43, 50),
    attempt = string.sub(value, 51, 54),
    crc = string.sub(value, 63, 66),
    details = string.sub(value, HEAD + 1, HEAD + struct.unpack('<I4', value, 55)),
  }
end

-- The record in a value; nil if the value is not a record, or is damaged.
local function parse(id, value)
  if type(value) ~= 'string' or #value < HEAD or string.byte(value, 1) ~= FORMAT then return nil end
  local details_bytes, outcome_bytes = struct.unpack('<I4I4', value, 55)
  if #value ~= HEAD + details_bytes + outcome_bytes then return nil end
  local record = split(value)
  if string.sub(value, 67, HEAD) ~= sum(id, string.sub(value, 1, 66), record.details) then return nil end
  return record
end
