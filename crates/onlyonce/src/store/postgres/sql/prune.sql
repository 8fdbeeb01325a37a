-- Deletes entries of the writer $1 from before $2, oldest first and at most $3, and moves the checkpoint in the head to
-- the last of them. Answers how many there were.
WITH old AS MATERIALIZED (
  SELECT a.sequence, a.hash, a.at FROM {schema}.audit a WHERE a.writer = $1::bytea ORDER BY a.sequence LIMIT $3::bigint),
due AS MATERIALIZED (
  SELECT o.sequence, o.hash FROM old o
   WHERE NOT EXISTS (SELECT FROM old young WHERE young.at >= $2::timestamptz AND young.sequence <= o.sequence)),
last AS MATERIALIZED (SELECT d.sequence, d.hash FROM due d ORDER BY d.sequence DESC LIMIT 1),
gone AS (
  DELETE FROM {schema}.audit a USING last l WHERE a.writer = $1::bytea AND a.sequence <= l.sequence),
moved AS (
  UPDATE {schema}.audit_head h SET from_sequence = l.sequence, from_hash = l.hash
    FROM last l WHERE h.writer = $1::bytea AND h.from_sequence < l.sequence)
SELECT count(*) AS pruned FROM due
