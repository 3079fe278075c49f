-- name: changes
-- SQL Server tells nobody of a change: whoever wants to know polls.
SELECT 0 AS changes;
