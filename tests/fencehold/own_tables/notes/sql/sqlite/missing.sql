-- name: missing
SELECT 'notes' AS name WHERE NOT EXISTS (SELECT 1 FROM sqlite_master WHERE name = 'notes');
