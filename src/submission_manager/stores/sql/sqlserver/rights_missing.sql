-- name: rights_missing
-- only: postgres and sqlserver, because SQLite knows no rights.
-- What the service needs of this login and it does not have: `INSERT on submission_attempts`.
SELECT w.privilege + N' on ' + w.name AS missing
  FROM (VALUES (N'submission_intents', N'SELECT'), (N'submission_intents', N'INSERT'), (N'submission_intents', N'UPDATE'),
               (N'submission_attempts', N'SELECT'), (N'submission_attempts', N'INSERT'),
               (N'submission_owner', N'SELECT'), (N'submission_owner', N'INSERT'),
               (N'submission_manager_leases', N'SELECT'), (N'submission_manager_leases', N'INSERT'),
               (N'submission_manager_leases', N'UPDATE'), (N'submission_manager_leases_terms', N'SELECT'),
               (N'submission_manager_leases_terms', N'INSERT'), (N'submission_manager_leases_terms', N'UPDATE')) AS w (name, privilege)
 WHERE HAS_PERMS_BY_NAME(w.name, N'OBJECT', w.privilege) = 0
 ORDER BY missing;
