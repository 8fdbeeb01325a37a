-- How many records there are. Running and unknown ones are counted by their own indexes; all of them are the server's own
-- estimate, which is as old as the last VACUUM or ANALYZE.
WITH {clock}
SELECT c.now,
       (SELECT count(*) FROM {schema}.record r WHERE r.state = {running}) AS running,
       (SELECT min(r.first_claimed_at) FROM {schema}.record r WHERE r.state = {running}) AS running_since,
       (SELECT count(*) FROM {schema}.record r WHERE r.state = {unknown}) AS unknown,
       (SELECT min(r.unknown_since) FROM {schema}.record r WHERE r.state = {unknown}) AS unknown_since,
       (SELECT greatest(t.reltuples, 0)::bigint FROM pg_class t WHERE t.oid = '{schema}.record'::regclass) AS records
  FROM clock c
