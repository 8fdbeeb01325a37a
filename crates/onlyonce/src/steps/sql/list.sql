-- Operations of state $1, name $2, key $3 and id $4, if they are given; completed ones too, if $5 says so. The page after
-- the operation with id $7 that is as it is since $6, in microseconds: a rounded time would leave operations out. Times are
-- no integers here: `infinity` would be an error of the whole page.
SELECT s.id, s.name, s.key, s.state, s.attempts, s.calling, s.repeatable, s.error, s.note, s.status, s.request, s.revision,
       s.headers::text AS headers,
       CASE WHEN s.calling IS NOT NULL THEN (extract(epoch FROM s.since + s.quiet) * 1000)::float8 END AS quiet_ms,
       (extract(epoch FROM s.since) * 1000000)::float8 AS since_us,
       (extract(epoch FROM s.begun_at) * 1000)::float8 AS begun_ms,
       (extract(epoch FROM s.due_at) * 1000)::float8 AS due_ms,
       (SELECT p.name FROM {schema}.point p WHERE p.operation = s.id ORDER BY p.number DESC LIMIT 1) AS point
  FROM {schema}.steps s
 WHERE ($1::text IS NULL OR s.state = $1) AND ($2::text IS NULL OR s.name = $2) AND ($3::text IS NULL OR s.key = $3)
   AND ($4::uuid IS NULL OR s.id = $4) AND ($5::boolean OR s.state <> 'completed')
   AND ($6::bigint IS NULL
        OR (s.since, s.id) > (timestamptz 'epoch' + $6::bigint * interval '1 us', $7::uuid))
 ORDER BY s.since, s.id LIMIT $8::bigint
