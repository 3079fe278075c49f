-- name: tables_made
-- What was made, and is still there: each set of tables by the name of its first table, and its steps. A login does not
-- see a table on which it has no right; such a one is left out.
SELECT component, step FROM fencehold_schema WHERE OBJECT_ID(component) IS NOT NULL ORDER BY component, step;
