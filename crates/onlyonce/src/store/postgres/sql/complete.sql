-- Writes final outcomes over the records whose condition holds. This is the only swap whose guard the server judges: it
-- is one in two of all writes, and as a put it would need a read and a second commit.
WITH {clock},
made AS (
  UPDATE {schema}.record r
     SET token = COALESCE(a.new_token, r.token),
         count = CASE WHEN a.new_token IS NULL THEN r.count + 1 ELSE 1 END,
         state = {completed}, lease_until = NULL, unknown_since = NULL,
         expires_at = {schema}.after(c.now, r.ttl_ms),
         settled_by = a.settled_by, head = a.head, body = a.body
    FROM {given}, clock c
   WHERE r.id = a.id AND r.token = a.old_token AND r.format = {format}
     AND CASE WHEN a.old_states = 0 THEN r.count = a.old_count ELSE (a.old_states >> r.state) & 1 = 1 END
  RETURNING r.id, r.token, r.count)
{written}
