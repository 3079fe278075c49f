-- name: parts_missing
-- What the statements need and the database does not have: `table.column`, or `table` when all of it is missing. A login
-- does not see a table on which it has no right; one that could not make it anyway is not told that it is missing.
SELECT DISTINCT p.name + CASE WHEN OBJECT_ID(p.name) IS NULL THEN N'' ELSE N'.' + p.field END AS part
  FROM (VALUES (N'fencehold_items', N'number'), (N'fencehold_items', N'kind'), (N'fencehold_items', N'id'),
               (N'fencehold_items', N'state'), (N'fencehold_items', N'state_timestamp'),
               (N'fencehold_items', N'token'), (N'fencehold_items', N'holder_id'),
               (N'fencehold_items', N'leased_at'), (N'fencehold_items', N'lease_ms'),
               (N'fencehold_items', N'expires_at'), (N'fencehold_items', N'document')) AS p (name, field)
 WHERE (OBJECT_ID(p.name) IS NOT NULL AND COL_LENGTH(p.name, p.field) IS NULL)
    OR (OBJECT_ID(p.name) IS NULL AND HAS_PERMS_BY_NAME(DB_NAME(), N'DATABASE', N'CREATE TABLE') = 1)
 ORDER BY part;
