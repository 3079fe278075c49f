-- name: table_there
-- Whether the table that the steps made is still there; SQLite compares names without their case.
SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE type IN ('table', 'view') AND lower(name) = :table);
