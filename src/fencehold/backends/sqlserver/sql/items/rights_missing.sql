-- name: rights_missing
-- only: postgres and sqlserver, because SQLite knows no rights.
-- What the statements need of this login and it does not have: `UPDATE on table`.
SELECT w.privilege + N' on ' + w.name AS missing
  FROM (VALUES (N'fencehold_items', N'SELECT'), (N'fencehold_items', N'INSERT'), (N'fencehold_items', N'UPDATE'),
               (N'fencehold_items', N'DELETE'), (N'fencehold_items' + N'_token', N'UPDATE')) AS w (name, privilege)
 WHERE HAS_PERMS_BY_NAME(w.name, N'OBJECT', w.privilege) = 0
 ORDER BY missing;
