-- Replaces whole records that are exactly as they were read. A take that had to wait for a row which was changed
-- meanwhile obeys its not_after again when it has the row.
WITH {clock},
made AS (
  UPDATE {schema}.record r SET ({columns}) = ROW ({a.columns})
    FROM {given}, clock c
   WHERE r.id = a.id AND r.token = a.old_token AND r.count = a.old_count AND r.format = {format}
     AND c.now <= a.not_after AND {now} <= a.not_after
  RETURNING r.id, r.token, r.count)
{made}
