-- name: parts_missing
-- What the statements need and the file does not have: `table.column`, or `table` when all of it is missing.
SELECT DISTINCT t.name || CASE WHEN EXISTS (SELECT 1 FROM pragma_table_info(t.name)) THEN '.' || c.value ELSE '' END AS part
  FROM (SELECT 'fencehold_items' AS name,
               '["kind", "id", "state", "state_timestamp", "token", "holder_id", "leased_at", "lease_ms", "expires_at",
                 "document"]' AS columns
         UNION ALL
        SELECT 'fencehold_items' || '_token', '["one", "token"]') AS t, json_each(t.columns) AS c
 WHERE c.value NOT IN (SELECT p.name FROM pragma_table_info(t.name) AS p)
 ORDER BY part;
