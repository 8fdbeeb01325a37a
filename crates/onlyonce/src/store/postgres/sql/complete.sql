-- Writes the final outcome of an owner over its record. This is the only swap whose guard the server judges: it is one
-- in two of all writes, and as a put it would need a read and a second commit.
WITH {clock},
made AS (
  UPDATE {schema}.record r
     SET count = r.count + 1, state = {completed}, lease_until = NULL, unknown_since = NULL,
         expires_at = {schema}.after(c.now, r.ttl_ms),
         settled_by = a.settled_by, head = a.head, body = a.body
    FROM {given}, clock c
   WHERE r.id = a.id AND r.token = a.old_token AND (a.old_states >> r.state) & 1 = 1 AND r.format = {format}
  RETURNING r.id, r.token, r.count)
{made}
