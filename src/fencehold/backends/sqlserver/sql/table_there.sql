-- name: table_there
-- Whether the table that the steps made is still there.
DECLARE @table nvarchar(256) = :table;
SELECT CASE WHEN OBJECT_ID(@table) IS NULL THEN 0 ELSE 1 END AS is_there;
