-- Reads the head of the chain of the writer $1.
SELECT writer, sequence, hash, from_sequence, from_hash, appended FROM {schema}.audit_head WHERE writer = $1::bytea
