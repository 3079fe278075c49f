-- name: foreign
-- Whether there is something of these names that we did not make.
DECLARE @table nvarchar(256) = :table;
SELECT CASE WHEN COALESCE(OBJECT_ID(@table), OBJECT_ID(@table + N'_reaper'), OBJECT_ID(@table + N'_consumed'),
                          OBJECT_ID(@table + N'_identity')) IS NULL
            THEN 0 ELSE 1 END AS is_there;
