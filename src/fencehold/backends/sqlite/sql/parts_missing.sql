-- name: parts_missing
-- What the statements need and the file does not have: `table.column`, or `table` when all of it is missing.
SELECT DISTINCT t.name || CASE WHEN EXISTS (SELECT 1 FROM pragma_table_info(t.name)) THEN '.' || c.value ELSE '' END AS part
  FROM (SELECT 'fencehold_leases' AS name,
               '["lease_name", "holder_id", "lease_epoch", "acquired_at", "renewed_at", "expires_at", "acquire_nonce",
                 "step_down_epoch", "lease_id"]' AS columns) AS t, json_each(t.columns) AS c
 WHERE c.value NOT IN (SELECT p.name FROM pragma_table_info(t.name) AS p)
 ORDER BY part;
