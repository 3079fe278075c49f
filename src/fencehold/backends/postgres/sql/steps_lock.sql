-- name: steps_lock
-- One migration at a time per database; the lock ends with the transaction.
SELECT pg_advisory_xact_lock(1718511459, 1);
