-- Extends leases. A row that someone else has locked is passed, so that no other lease lapses for it: it is listed, and not
-- as written.
WITH {clock},
free AS MATERIALIZED (
  SELECT r.id, a.lease_ms FROM {given} JOIN {schema}.record r ON r.id = a.id
   WHERE r.token = a.token AND r.state = {running} AND r.format = {format}
     FOR UPDATE OF r SKIP LOCKED),
made AS (
  UPDATE {schema}.record r SET lease_until = {schema}.after(c.now, f.lease_ms), count = r.count + 1
    FROM free f, clock c WHERE r.id = f.id
  RETURNING r.id, r.token, r.count)
SELECT c.now, x.* FROM clock c LEFT JOIN (
  SELECT true AS wrote, m.* FROM made m
  UNION ALL
  SELECT false, r.id, r.token, r.count FROM {given} JOIN {schema}.record r ON r.id = a.id
   WHERE r.token = a.token AND r.state = {running} AND r.format = {format}
     AND r.id NOT IN (SELECT f.id FROM free f)) x ON true
