-- Gives back messages that were not shipped, of which the lease is still ours. With a pause of its own ($4, in ms) a message
-- is due again after it, and nothing is counted. Without, its refusal is counted: the pause begins with $6 ms and doubles up
-- to $7 ms, and the refusal that makes $5 parks the message.
UPDATE {schema}.outbox o
   SET lease = NULL, error = coalesce(a.error, o.error), attempts = o.attempts + (a.pause_ms IS NULL)::integer,
       parked_at = CASE WHEN a.pause_ms IS NULL AND o.attempts + 1 >= $5::integer THEN c.now END,
       due_at = CASE
         WHEN a.pause_ms IS NOT NULL THEN c.now + a.pause_ms * interval '1 ms'
         WHEN o.attempts + 1 >= $5 THEN 'infinity'
         ELSE c.now + least($6::float8 * 2 ^ least(o.attempts, 40), $7::float8) * interval '1 ms' END
  FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::float8[]) AS a (id, lease, error, pause_ms),
       (SELECT {now} AS now) c
 WHERE o.id = a.id AND o.lease = a.lease
RETURNING o.id, o.topic, o.attempts, o.parked_at IS NOT NULL AS is_parked
