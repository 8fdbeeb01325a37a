-- Reads records by their ids.
WITH {clock}
SELECT c.now, false AS wrote, x.* FROM clock c LEFT JOIN (
  SELECT {r.columns} FROM {given} JOIN {schema}.record r ON r.id = a.id) x ON true
