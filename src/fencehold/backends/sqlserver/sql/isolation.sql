-- name: isolation
-- The fence reads the lease with a lock, as it is now; no isolation level shows it an older row.
SELECT N'read committed' AS isolation;
