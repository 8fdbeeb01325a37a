-- Leases the first message of each lane, if it is due. A first message that is leased, paused or parked keeps its whole
-- lane waiting. Visits the lanes after ($1, $2), one index probe each: at most $3 of them, until $4 are found. So a long
-- lane costs no more than a short one. {after} is one of:
--   (o.topic, o.lane) > (h.topic, h.lane) AND …                   for all topics but $8
--   o.topic = $7::text AND o.lane > h.lane AND …                  for one; with the rows compared, the index is read
--                                                                 from the start of the topic each time
--   o.topic = $7::text AND … AND o.lane = ANY ($11::text[])       for some lanes of one
--
-- Of suspects, which were not shipped at their last attempt, it takes at most $9. For a probe ($10) only where nothing else
-- is found on the whole way.
--
-- A row that was the first of its lane in an old snapshot is still the first, unless it was deleted: rows come to a lane
-- at its end alone. Whether it is still due is judged again once it is locked. Times of rows are no integers: `infinity` would be
-- an error of the whole statement.
WITH RECURSIVE head AS (
  SELECT $1::text AS topic, $2::text AS lane, NULL::uuid AS id, false AS is_due, false AS is_suspect,
         0::bigint AS lanes, 0::bigint AS others, 0::bigint AS suspects, {now} AS now
  UNION ALL
  SELECT n.topic, n.lane, n.id, n.is_due AND (NOT n.is_suspect OR h.suspects < $9::bigint), n.is_suspect,
         h.lanes + 1, h.others + (n.is_due AND NOT n.is_suspect)::integer,
         h.suspects + (n.is_due AND n.is_suspect AND h.suspects < $9)::integer, h.now
    FROM head h CROSS JOIN LATERAL (
      SELECT o.topic, o.lane, o.id, o.error IS NOT NULL AS is_suspect,
             o.due_at <= h.now AND o.topic <> ALL ($8::text[]) AS is_due
        FROM {schema}.outbox o
       WHERE {after}
       ORDER BY o.topic, o.lane, o.position LIMIT 1) n
   WHERE h.lanes < $3::bigint AND h.others + CASE WHEN $10::boolean THEN 0 ELSE h.suspects END < $4::bigint),
picked AS (
  SELECT h.id, h.is_suspect, h.now FROM head h WHERE h.is_due
   ORDER BY CASE WHEN $10 THEN h.is_suspect END, h.lanes LIMIT $4),
due AS MATERIALIZED (
  SELECT o.id, p.is_suspect, p.now FROM picked p JOIN {schema}.outbox o ON o.id = p.id
   WHERE o.due_at <= p.now
     FOR UPDATE OF o SKIP LOCKED),
leased AS (
  UPDATE {schema}.outbox o SET lease = $5::uuid, due_at = d.now + $6::float8 * interval '1 ms'
    FROM due d WHERE o.id = d.id
  RETURNING o.id, o.position, o.topic, o.key, o.payload, o.attempts, d.is_suspect,
            (extract(epoch FROM o.created_at) * 1000)::float8 AS created_ms)
-- Where the next call goes on; NULL after the last lane.
SELECT CASE WHEN t.is_stopped THEN t.topic END AS next_topic, CASE WHEN t.is_stopped THEN t.lane END AS next_lane,
       (extract(epoch FROM t.now) * 1000)::bigint AS now_ms, l.*
  FROM (SELECT h.topic, h.lane, h.now,
               h.lanes = $3 OR h.others + CASE WHEN $10 THEN 0 ELSE h.suspects END >= $4 AS is_stopped
          FROM head h ORDER BY h.lanes DESC LIMIT 1) t LEFT JOIN leased l ON true
 ORDER BY l.position
