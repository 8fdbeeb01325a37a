-- Makes parked messages due again, with all of their attempts: the one with id $1, or those of topic $2 and key $3, if
-- they are given.
UPDATE {schema}.outbox o SET parked_at = NULL, due_at = {now}, attempts = 0
 WHERE o.id IN (
   SELECT p.id FROM {schema}.outbox p
    WHERE p.parked_at IS NOT NULL AND ($1::uuid IS NULL OR p.id = $1)
      AND ($2::text IS NULL OR p.topic = $2) AND ($3::text IS NULL OR p.key = $3)
    ORDER BY p.position LIMIT $4::bigint FOR UPDATE)
   AND o.parked_at IS NOT NULL
RETURNING o.id
