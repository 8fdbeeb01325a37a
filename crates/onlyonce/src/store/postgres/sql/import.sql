-- Copies records from another store, over the copies of an earlier import that was interrupted: since then that store may
-- have been used. Nothing once the import is finished.
INSERT INTO {schema}.record ({columns})
SELECT {a.columns} FROM {given}
 WHERE EXISTS (SELECT FROM {schema}.meta m WHERE m.one = 1 AND m.imported_from IS NOT NULL)
ON CONFLICT (id) DO UPDATE SET ({columns}) = ROW ({excluded.columns})
RETURNING id
