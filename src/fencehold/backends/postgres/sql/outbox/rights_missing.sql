-- name: rights_missing
-- only: postgres and sqlserver, because SQLite knows no rights.
-- What the statements need of this role and it does not have: `UPDATE on table`.
SELECT w.privilege || ' on ' || replace(w.name, '"', '') AS missing
  FROM (VALUES ('fencehold_outbox', 'SELECT'), ('fencehold_outbox', 'INSERT'), ('fencehold_outbox', 'UPDATE'),
               ('fencehold_outbox_reaper', 'SELECT'), ('fencehold_outbox_reaper', 'INSERT'),
               ('fencehold_outbox_reaper', 'UPDATE'), ('fencehold_outbox_consumed', 'SELECT'),
               ('fencehold_outbox_consumed', 'INSERT'), ('fencehold_outbox_identity', 'SELECT')) AS w(name, privilege)
 WHERE to_regclass(w.name) IS NOT NULL AND NOT has_table_privilege(to_regclass(w.name), w.privilege)
 ORDER BY missing;
