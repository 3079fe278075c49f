-- name: table_there
-- Whether the table that the steps made is still there.
SELECT to_regclass(:table) IS NOT NULL;
