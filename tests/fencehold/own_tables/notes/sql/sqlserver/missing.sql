-- name: missing
SELECT N'notes' AS name WHERE OBJECT_ID(N'notes') IS NULL;
