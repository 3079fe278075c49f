-- name: missing
SELECT 'notes' AS name WHERE to_regclass('notes') IS NULL;
