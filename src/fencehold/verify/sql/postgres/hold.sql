-- name: hold
-- Keeps every other writer of this counter waiting until the transaction ends.
SELECT n FROM {schema}.verify_counters WHERE name = CAST(:counter AS text) FOR UPDATE
