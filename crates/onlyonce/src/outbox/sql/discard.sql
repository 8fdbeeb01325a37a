-- Deletes a parked message that was not shipped.
DELETE FROM {schema}.outbox o WHERE o.id = $1::uuid AND o.parked_at IS NOT NULL
RETURNING o.topic
