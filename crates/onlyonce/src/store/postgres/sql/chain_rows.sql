-- Reads entries of the writer $1 after the number $2, $3 at most.
SELECT writer, {entry}, {exact} FROM {schema}.audit
 WHERE writer = $1::bytea AND sequence > $2::bigint ORDER BY sequence LIMIT $3::bigint
