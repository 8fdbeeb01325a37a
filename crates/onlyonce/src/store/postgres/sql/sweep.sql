-- Deletes at most $3 records that have expired at $1, from those on that expired at $2, and tells which, and whether there
-- are more. A row that is locked is passed, and one that was changed before it was locked is judged again. The answer tells
-- where to go on: while an old snapshot keeps deleted rows from being cleaned up, a sweep that began at the start again
-- would read all of those first.
WITH {clock},
due AS MATERIALIZED (
  SELECT r.id, r.expires_at FROM clock c, {schema}.record r
   WHERE r.expires_at BETWEEN $2::timestamptz AND $1::timestamptz
     AND r.state IN ({released}, {completed}) AND r.format = {format}
   ORDER BY r.expires_at LIMIT $3::bigint + 1 FOR UPDATE OF r SKIP LOCKED),
gone AS (
  DELETE FROM {schema}.record r USING (SELECT d.id FROM due d ORDER BY d.expires_at LIMIT $3) d WHERE r.id = d.id
  RETURNING r.id, r.expires_at, r.route, r.principal, r.attempt)
SELECT c.now, (SELECT count(*) > $3 FROM due) AS more, g.* FROM clock c LEFT JOIN gone g ON true
