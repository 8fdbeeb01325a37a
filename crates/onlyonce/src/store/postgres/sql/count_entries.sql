-- Counts the entries of the operation $1 that are of the kind $2.
SELECT count(*) AS counted FROM {schema}.audit WHERE id = $1::uuid AND kind = $2::text
