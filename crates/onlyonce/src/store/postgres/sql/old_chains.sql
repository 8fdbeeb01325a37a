-- Lists the writers whose chain begins with an entry from before $1.
SELECT h.writer FROM {schema}.audit_head h
 WHERE h.from_sequence < h.sequence
   AND (SELECT a.at FROM {schema}.audit a WHERE a.writer = h.writer ORDER BY a.sequence LIMIT 1) < $1::timestamptz
