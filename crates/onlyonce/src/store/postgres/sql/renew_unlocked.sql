-- Extends the leases of the rows that nobody has locked. It locks the rows first, and so writes them twice.
WITH {clock},
free AS MATERIALIZED (
  SELECT r.id, a.lease_ms FROM {given} JOIN {schema}.record r ON r.id = a.id
   WHERE r.token = a.token AND r.state = {running} AND r.format = {format}
     FOR UPDATE OF r SKIP LOCKED),
made AS (
  UPDATE {schema}.record r SET lease_until = {schema}.after(c.now, f.lease_ms), count = r.count + 1
    FROM free f, clock c WHERE r.id = f.id
  RETURNING r.id, r.token, r.count)
{written}
