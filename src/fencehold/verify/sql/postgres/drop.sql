-- name: drop
-- only: postgres, because on SQLite the whole file goes.
DROP SCHEMA IF EXISTS {schema} CASCADE;
