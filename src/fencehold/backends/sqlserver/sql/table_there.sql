-- name: table_there
-- Whether the table that the steps made is still there. A login does not see a table on which it has no right; one that
-- could not make it anyway takes the record's word for it.
DECLARE @table nvarchar(256) = :table;
SELECT CASE WHEN OBJECT_ID(@table) IS NULL AND HAS_PERMS_BY_NAME(DB_NAME(), N'DATABASE', N'CREATE TABLE') = 1
            THEN 0 ELSE 1 END AS is_there;
