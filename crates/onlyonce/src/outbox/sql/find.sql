-- The parked message with id $1, and its payload.
SELECT o.id, o.position, o.topic, o.key, o.payload, o.attempts, o.error,
       (extract(epoch FROM o.created_at) * 1000)::float8 AS created_ms,
       (extract(epoch FROM o.parked_at) * 1000)::float8 AS parked_ms
  FROM {schema}.outbox o WHERE o.id = $1::uuid AND o.parked_at IS NOT NULL
