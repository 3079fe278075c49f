-- name: tables_made
-- What was made, and is still there: each set of tables by the name of its first table, and its steps.
SELECT component, step
  FROM fencehold_schema
 WHERE EXISTS (SELECT 1 FROM sqlite_master WHERE type IN ('table', 'view') AND lower(name) = component)
 ORDER BY component, step;
