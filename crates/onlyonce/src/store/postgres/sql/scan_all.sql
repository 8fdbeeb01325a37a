-- Lists records in any state from the id $1 on, $2 at most.
WITH {clock}
SELECT c.now, false AS written, {r.columns}
  FROM clock c CROSS JOIN (
    SELECT * FROM {schema}.record r WHERE r.id >= $1::uuid ORDER BY r.id LIMIT $2::bigint) r
UNION ALL {time}
