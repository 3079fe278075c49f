-- name: rights_missing
-- only: postgres and sqlserver, because SQLite knows no rights.
-- What the statements need of this role and it does not have: `UPDATE on table`.
SELECT w.privilege || ' on ' || replace(w.name, '"', '') AS missing
  FROM (VALUES ('fencehold_items', 'SELECT'), ('fencehold_items', 'INSERT'), ('fencehold_items', 'UPDATE'),
               ('fencehold_items', 'DELETE')) AS w(name, privilege)
 WHERE to_regclass(w.name) IS NOT NULL AND NOT has_table_privilege(to_regclass(w.name), w.privilege)
UNION ALL
SELECT 'USAGE on ' || replace(w.name, '"', '') FROM (VALUES ('fencehold_items_token')) AS w(name)
 WHERE to_regclass(w.name) IS NOT NULL AND NOT has_sequence_privilege(to_regclass(w.name), 'USAGE')
 ORDER BY missing;
