-- Reads records by their ids.
WITH {clock}
SELECT c.now, false AS written, {r.columns}
  FROM clock c CROSS JOIN {given} JOIN {schema}.record r ON r.id = a.id
UNION ALL {time}
