-- name: parts_missing
-- What the statements need and the database does not have: `table.column`, or `table` when all of it is missing. A login
-- does not see a table on which it has no right; one that could not make it anyway is not told that it is missing.
SELECT DISTINCT p.name + CASE WHEN OBJECT_ID(p.name) IS NULL THEN N'' ELSE N'.' + p.field END AS part
  FROM (VALUES (N'fencehold_leases', N'lease_name'), (N'fencehold_leases', N'holder_id'),
               (N'fencehold_leases', N'lease_epoch'), (N'fencehold_leases', N'acquired_at'),
               (N'fencehold_leases', N'renewed_at'), (N'fencehold_leases', N'expires_at'),
               (N'fencehold_leases', N'acquire_nonce'), (N'fencehold_leases', N'step_down_epoch'),
               (N'fencehold_leases', N'lease_id'), (N'fencehold_leases' + N'_terms', N'lease_name'),
               (N'fencehold_leases' + N'_terms', N'lease_epoch')) AS p (name, field)
 WHERE (OBJECT_ID(p.name) IS NOT NULL AND COL_LENGTH(p.name, p.field) IS NULL)
    OR (OBJECT_ID(p.name) IS NULL AND HAS_PERMS_BY_NAME(DB_NAME(), N'DATABASE', N'CREATE TABLE') = 1)
 ORDER BY part;
