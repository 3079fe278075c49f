-- name: foreign
-- Whether there is something of these names that we did not make.
DECLARE @table nvarchar(256) = :table;
SELECT CASE WHEN OBJECT_ID(@table) IS NULL AND OBJECT_ID(@table + N'_token') IS NULL THEN 0 ELSE 1 END AS is_there;
