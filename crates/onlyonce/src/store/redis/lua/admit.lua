-- Counts one use of each limit, or of none if one of them is used up (a generic cell rate; `velocity.rs` has the same).
-- KEYS: one for each limit, with the moment until which it is used. ARGV: for each limit, after how long one more use is
-- allowed, and how far ahead its uses may be. All in microseconds.
-- Answers with how long to wait; 0 if the uses were counted.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local used, wait = {}, 0
for i, key in ipairs(KEYS) do
  local every, burst = tonumber(ARGV[2 * i - 1]), tonumber(ARGV[2 * i])
  -- Never further ahead than its uses may be: the clock may have been set back.
  local last = math.min(tonumber(redis.call('GET', key)) or now, now + burst)
  used[i] = math.max(last, now) + every
  wait = math.max(wait, used[i] - now - burst)
end
if wait > 0 then return wait end
for i, key in ipairs(KEYS) do
  redis.call('SET', key, string.format('%.0f', used[i]), 'PX', math.ceil((used[i] - now) / 1000))
end
return 0
