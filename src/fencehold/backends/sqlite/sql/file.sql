-- name: file
-- only: sqlite, because elsewhere a connection to another database shows when the table is missing.
PRAGMA database_list;
