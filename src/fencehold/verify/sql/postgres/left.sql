-- name: left
-- only: postgres, because on SQLite they are files.
-- Schemas of earlier runs that were killed before they could clean up, or that still run.
SELECT nspname FROM pg_catalog.pg_namespace
 WHERE nspname LIKE 'fencehold\_verify\_%' AND nspname <> :schema ORDER BY nspname;
