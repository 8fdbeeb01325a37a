-- Lists running records from the id $1 on, $2 at most, by the index that has only those.
WITH {clock}
SELECT {read}
  FROM clock c CROSS JOIN (
    SELECT * FROM {schema}.record r WHERE r.state = {running} AND r.id >= $1::uuid ORDER BY r.id LIMIT $2::bigint) r
UNION ALL SELECT c.now, NULL, NULL, NULL, {nothing} FROM clock c
