-- Deletes messages that were shipped, of which the lease is still ours. If it is not, another relay ships the message again
-- and deletes it.
DELETE FROM {schema}.outbox o USING unnest($1::uuid[], $2::uuid[]) AS a (id, lease)
 WHERE o.id = a.id AND o.lease = a.lease
RETURNING o.id
