-- Copies records from another store.
INSERT INTO {schema}.record ({columns}) SELECT {a.columns} FROM {given} ON CONFLICT (id) DO NOTHING
