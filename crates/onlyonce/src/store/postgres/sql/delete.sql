-- Deletes records that are exactly as they were read. The revision of a deletion has the highest count, of which -1 has
-- the bits.
WITH {clock},
made AS (
  DELETE FROM {schema}.record r USING {given}, clock c
   WHERE r.id = a.id AND r.token = a.old_token AND r.count = a.old_count AND r.format = {format}
  RETURNING r.id, r.token, -1::bigint AS count)
{made}
