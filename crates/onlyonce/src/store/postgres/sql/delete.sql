-- Deletes records that are exactly as they were read.
WITH {clock},
made AS (
  DELETE FROM {schema}.record r USING {given}, clock c
   WHERE r.id = a.id AND r.token = a.old_token AND r.count = a.old_count AND r.format = {format}
  RETURNING r.id, r.token, r.count)
{written}
