-- Of each topic: the messages that wait, how long the oldest of them does, and the parked ones. At most $1 topics.
SELECT o.topic, count(*) FILTER (WHERE o.parked_at IS NULL) AS waiting, count(o.parked_at) AS parked,
       (extract(epoch FROM {now} - min(o.created_at) FILTER (WHERE o.parked_at IS NULL AND isfinite(o.created_at))) * 1000)::bigint
         AS oldest_ms
  FROM {schema}.outbox o
 GROUP BY o.topic ORDER BY o.topic LIMIT $1::bigint
