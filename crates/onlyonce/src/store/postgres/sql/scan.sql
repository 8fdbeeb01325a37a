-- Lists records from the id $1 on, $2 at most; running and unknown ones by the index that has only those.
WITH {clock}
SELECT c.now, false AS wrote, x.* FROM clock c LEFT JOIN (
  SELECT {r.columns} FROM {schema}.record r WHERE {listed} r.id >= $1::uuid ORDER BY r.id LIMIT $2::bigint) x ON true
