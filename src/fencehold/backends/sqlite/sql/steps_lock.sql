-- name: steps_lock
-- One migration at a time per file; the lock ends with the transaction.
BEGIN IMMEDIATE;
