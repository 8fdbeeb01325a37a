-- Gives back messages that were not shipped, of which the lease is still ours. A refusal is counted: the pause before the
-- next attempt begins with $6 ms and doubles up to $7 ms, and the refusal that makes $5 parks the message. Anything else is
-- no fault of the message: it is due again after $8 ms.
UPDATE {schema}.outbox o
   SET lease = NULL, error = coalesce(a.error, o.error), attempts = o.attempts + a.is_refused::integer,
       parked_at = CASE WHEN a.is_refused AND o.attempts + 1 >= $5::integer THEN c.now END,
       due_at = CASE
         WHEN NOT a.is_refused THEN c.now + $8::float8 * interval '1 ms'
         WHEN o.attempts + 1 >= $5 THEN 'infinity'
         ELSE c.now + least($6::float8 * 2 ^ least(o.attempts, 40), $7::float8) * interval '1 ms' END
  FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::boolean[]) AS a (id, lease, error, is_refused),
       (SELECT {now} AS now) c
 WHERE o.id = a.id AND o.lease = a.lease
RETURNING o.id, o.topic, o.attempts, o.parked_at IS NOT NULL AS is_parked
