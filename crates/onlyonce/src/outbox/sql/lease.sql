-- Leases the first message of each lane, if it is due. A first message that is leased, paused or parked keeps its whole
-- lane waiting. Visits the lanes after ($1, $2), one index probe each: at most $3 of them, until $4 are due. So a long
-- lane costs no more than a short one. {after} is one of:
--   (o.topic, o.lane) > (h.topic, h.lane) AND $7::text IS NULL    for all topics
--   o.topic = $7::text AND o.lane > h.lane                        for one; with the rows compared, the index is read
--                                                                 from the start of the topic each time
--
-- A row that was the first of its lane in an old snapshot is still the first, unless it was deleted: rows come to a lane
-- at its end alone. Whether it is still due is judged again once it is locked.
WITH RECURSIVE head AS (
  SELECT $1::text AS topic, $2::text AS lane, NULL::uuid AS id, false AS is_due, 0::bigint AS lanes, 0::bigint AS due,
         {now} AS now
  UNION ALL
  SELECT n.topic, n.lane, n.id, n.is_due, h.lanes + 1, h.due + n.is_due::integer, h.now
    FROM head h CROSS JOIN LATERAL (
      SELECT o.topic, o.lane, o.id, o.due_at <= h.now AS is_due
        FROM {schema}.outbox o
       WHERE {after}
       ORDER BY o.topic, o.lane, o.position LIMIT 1) n
   WHERE h.lanes < $3::bigint AND h.due < $4::bigint),
due AS MATERIALIZED (
  SELECT o.id, h.now FROM head h JOIN {schema}.outbox o ON o.id = h.id
   WHERE h.is_due AND o.due_at <= h.now
     FOR UPDATE OF o SKIP LOCKED),
leased AS (
  UPDATE {schema}.outbox o SET lease = $5::uuid, due_at = d.now + $6::float8 * interval '1 ms'
    FROM due d WHERE o.id = d.id
  RETURNING o.id, o.position, o.topic, o.key, o.payload, o.attempts,
            (extract(epoch FROM o.created_at) * 1000)::bigint AS created_ms)
-- Where the next call goes on; NULL after the last lane.
SELECT CASE WHEN t.lanes = $3 OR t.due = $4 THEN t.topic END AS next_topic,
       CASE WHEN t.lanes = $3 OR t.due = $4 THEN t.lane END AS next_lane,
       (extract(epoch FROM t.now) * 1000)::bigint AS now_ms, l.*
  FROM (SELECT h.* FROM head h ORDER BY h.lanes DESC LIMIT 1) t LEFT JOIN leased l ON true
 ORDER BY l.position
