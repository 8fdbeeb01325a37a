-- Adds entries to the audit trail of the writer $1, and moves the head of its chain to the last of them, with the number
-- $2 and the hash $3. $4 is the last batch of readings in the chain. An entry whose number is taken makes all of it fail.
WITH added AS (INSERT INTO {schema}.audit (writer, {entry}) SELECT $1::bytea, {a.entry} FROM {entries})
INSERT INTO {schema}.audit_head (writer, sequence, hash, appended) VALUES ($1, $2::bigint, $3::bytea, $4::bytea)
ON CONFLICT (writer) DO UPDATE
  SET sequence = excluded.sequence, hash = excluded.hash, appended = excluded.appended
RETURNING 1
