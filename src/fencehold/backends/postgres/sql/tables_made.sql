-- name: tables_made
-- What was made, and is still there: each set of tables by the name of its first table, and its steps.
SELECT component, step FROM fencehold_schema WHERE to_regclass(component) IS NOT NULL ORDER BY component, step;
