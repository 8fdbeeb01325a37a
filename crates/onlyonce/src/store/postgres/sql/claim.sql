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
  RETURNING {columns})
SELECT c.now, x.* FROM clock c LEFT JOIN (
  SELECT true AS wrote, {m.columns} FROM made m
  UNION ALL SELECT false, {r.columns} FROM asked a JOIN {schema}.record r ON r.id = a.id) x ON true
