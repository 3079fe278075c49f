-- name: rights_missing
-- only: postgres and sqlserver, because SQLite knows no rights.
-- What the statements need of this login and it does not have: `UPDATE on table`.
SELECT w.privilege + N' on ' + w.name AS missing
  FROM (VALUES (N'fencehold_leases', N'SELECT'), (N'fencehold_leases', N'INSERT'), (N'fencehold_leases', N'UPDATE'),
               (N'fencehold_leases' + N'_terms', N'SELECT'), (N'fencehold_leases' + N'_terms', N'INSERT'),
               (N'fencehold_leases' + N'_terms', N'UPDATE')) AS w (name, privilege)
 WHERE HAS_PERMS_BY_NAME(w.name, N'OBJECT', w.privilege) = 0
 ORDER BY missing;
