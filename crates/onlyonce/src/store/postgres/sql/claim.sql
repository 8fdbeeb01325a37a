-- Inserts records where there are none, and reads the others. It reads first: what is there costs no transaction id and
-- no flush. A claim that finds nothing and inserts nothing has met another claim that was not committed yet, and is
-- asked again.
WITH {clock},
asked AS MATERIALIZED (SELECT * FROM {given}),
made AS (
  INSERT INTO {schema}.record ({claimed}, first_claimed_at, lease_until)
  SELECT {a.claimed}, c.now, {schema}.after(c.now, a.lease_ms)
    FROM asked a CROSS JOIN clock c
   WHERE c.now <= a.not_after AND NOT EXISTS (SELECT FROM {schema}.record r WHERE r.id = a.id)
  ON CONFLICT (id) DO NOTHING
  RETURNING id, token, count)
SELECT {read}
  FROM clock c CROSS JOIN asked a JOIN {schema}.record r ON r.id = a.id
UNION ALL SELECT c.now, w.*, {nothing} FROM clock c {with_written}
