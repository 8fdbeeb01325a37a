-- Reads records by their ids.
WITH {clock}
SELECT {read}
  FROM clock c CROSS JOIN {given} JOIN {schema}.record r ON r.id = a.id
UNION ALL SELECT c.now, NULL, NULL, NULL, {nothing} FROM clock c
