-- name: schema_rights
-- only: postgres, because SQLite has no schemas, and SQL Server makes its tables in one that everybody may use.
-- What this role may do in the schema of its tables; no row if there is none, or none of its search path that it may use.
SELECT n.nspname, has_schema_privilege(n.oid, 'USAGE'), has_schema_privilege(n.oid, 'CREATE')
  FROM pg_namespace AS n
 WHERE n.nspname = CASE WHEN strpos(:table, '.') > 0 THEN split_part(:table, '.', 1) ELSE current_schema() END;
