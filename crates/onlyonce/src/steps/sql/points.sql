-- The points of an operation, in the order of their commits.
SELECT p.name, p.value, (extract(epoch FROM p.committed_at) * 1000)::bigint AS committed_ms
  FROM {schema}.point p WHERE p.operation = $1::uuid ORDER BY p.number
