-- name: identity
-- only: postgres and sqlserver, because SQLite compares files.
SELECT outbox_id FROM fencehold_outbox_identity;
