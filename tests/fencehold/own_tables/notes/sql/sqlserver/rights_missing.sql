-- name: rights_missing
SELECT N'INSERT on notes' AS missing WHERE HAS_PERMS_BY_NAME(N'notes', N'OBJECT', N'INSERT') = 0;
