-- name: rights_missing
-- only: postgres and sqlserver, because SQLite knows no rights.
-- What the statements need of this role and it does not have: `UPDATE on table`.
SELECT w.privilege || ' on ' || replace(w.name, '"', '') AS missing
  FROM (VALUES ('fencehold_leases', 'SELECT'), ('fencehold_leases', 'INSERT'), ('fencehold_leases', 'UPDATE')) AS w(name, privilege)
 WHERE to_regclass(w.name) IS NOT NULL AND NOT has_table_privilege(to_regclass(w.name), w.privilege)
 ORDER BY missing;
