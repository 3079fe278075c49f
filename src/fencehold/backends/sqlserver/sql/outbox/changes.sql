-- name: changes
-- SQL Server tells nobody of an added event: workers poll.
SELECT 0 AS changes;
