-- name: rights_missing
-- only: postgres and sqlserver, because SQLite knows no rights.
-- What the service needs of this role and it does not have: `INSERT on submission_attempts`.
SELECT w.privilege || ' on ' || w.name AS missing
  FROM (VALUES ('submission_intents', 'SELECT'), ('submission_intents', 'INSERT'), ('submission_intents', 'UPDATE'),
               ('submission_attempts', 'SELECT'), ('submission_attempts', 'INSERT'),
               ('submission_owner', 'SELECT'), ('submission_owner', 'INSERT'),
               ('submission_manager_leases', 'SELECT'), ('submission_manager_leases', 'INSERT'),
               ('submission_manager_leases', 'UPDATE')) AS w(name, privilege)
 WHERE to_regclass(w.name) IS NOT NULL AND NOT has_table_privilege(to_regclass(w.name), w.privilege)
 ORDER BY missing;
