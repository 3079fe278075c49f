-- name: safeguards_missing
-- What keeps a stale writer out besides the statements, and is not there: what refuses a falling epoch and a deleted row.
-- A login that may not see the table's definition sees no triggers, and is told of none.
SELECT N'trigger ' + REPLACE(N'fencehold_leases_guard', N'"', N'')
       + CASE WHEN EXISTS (SELECT 1 FROM sys.triggers AS t
                            WHERE t.parent_id = OBJECT_ID(N'fencehold_leases') AND t.is_disabled = 1)
              THEN N' (disabled)' ELSE N'' END AS part
 WHERE HAS_PERMS_BY_NAME(N'fencehold_leases', N'OBJECT', N'VIEW DEFINITION') = 1
   AND NOT EXISTS (SELECT 1 FROM sys.triggers AS t
                    WHERE t.parent_id = OBJECT_ID(N'fencehold_leases') AND t.is_disabled = 0);
