-- name: make
-- only: postgres, because on SQLite the file is the schema.
CREATE SCHEMA {schema};
