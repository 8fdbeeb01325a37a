-- Reads the heads of all chains. Entries without a head are of an empty chain, which they do not fit. The writers are read
-- one by one from the index of the primary key: reading every entry would take too long.
WITH RECURSIVE writers AS (
  (SELECT a.writer FROM {schema}.audit a ORDER BY a.writer LIMIT 1)
  UNION ALL
  SELECT (SELECT a.writer FROM {schema}.audit a WHERE a.writer > w.writer ORDER BY a.writer LIMIT 1)
    FROM writers w WHERE w.writer IS NOT NULL)
SELECT h.writer, h.sequence, h.hash, h.from_sequence, h.from_hash, h.appended FROM {schema}.audit_head h
UNION ALL
SELECT w.writer, 0, decode(repeat('00', 32), 'hex'), 0, decode(repeat('00', 32), 'hex'), '' FROM writers w
 WHERE w.writer IS NOT NULL AND NOT EXISTS (SELECT FROM {schema}.audit_head h WHERE h.writer = w.writer)
