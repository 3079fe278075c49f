-- name: rights_missing
-- only: postgres and sqlserver, because SQLite knows no rights.
-- What the statements need of this login and it does not have: `UPDATE on table`.
SELECT w.privilege + N' on ' + w.name AS missing
  FROM (VALUES (N'fencehold_outbox', N'SELECT'), (N'fencehold_outbox', N'INSERT'), (N'fencehold_outbox', N'UPDATE'),
               (N'fencehold_outbox' + N'_reaper', N'SELECT'), (N'fencehold_outbox' + N'_reaper', N'INSERT'),
               (N'fencehold_outbox' + N'_reaper', N'UPDATE'), (N'fencehold_outbox' + N'_consumed', N'SELECT'),
               (N'fencehold_outbox' + N'_consumed', N'INSERT'),
               (N'fencehold_outbox' + N'_identity', N'SELECT')) AS w (name, privilege)
 WHERE HAS_PERMS_BY_NAME(w.name, N'OBJECT', w.privilege) = 0
 ORDER BY missing;
