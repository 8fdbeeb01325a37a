-- Parked messages after position $1, of topic $2 and key $3 if they are given. Without the payloads: a page of them may be
-- more than can be sent within the time of one answer.
SELECT o.id, o.position, o.topic, o.key, o.attempts, o.error,
       (extract(epoch FROM o.created_at) * 1000)::float8 AS created_ms,
       (extract(epoch FROM o.parked_at) * 1000)::float8 AS parked_ms
  FROM {schema}.outbox o
 WHERE o.parked_at IS NOT NULL AND o.position > $1::bigint
   AND ($2::text IS NULL OR o.topic = $2) AND ($3::text IS NULL OR o.key = $3)
 ORDER BY o.position LIMIT $4::bigint
