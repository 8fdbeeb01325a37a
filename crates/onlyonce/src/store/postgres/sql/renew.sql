-- Extends leases.
WITH {clock},
made AS (
  UPDATE {schema}.record r SET lease_until = {schema}.after(c.now, a.lease_ms), count = r.count + 1
    FROM {given}, clock c
   WHERE r.id = a.id AND r.token = a.token AND r.state = {running} AND r.format = {format}
  RETURNING r.id, r.token, r.count)
{written}
