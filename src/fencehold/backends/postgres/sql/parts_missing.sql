-- name: parts_missing
-- What the statements need and the database does not have: `table.column`, or `table` when all of it is missing.
SELECT DISTINCT replace(CASE WHEN to_regclass(t.name) IS NULL THEN t.name ELSE t.name || '.' || c.name END, '"', '') AS part
  FROM (VALUES ('fencehold_leases', 'lease_name holder_id lease_epoch acquired_at renewed_at expires_at acquire_nonce '
                                    'step_down_epoch lease_id grant_timeline grant_system')) AS t(name, columns)
 CROSS JOIN unnest(string_to_array(t.columns, ' ')) AS c(name)
 WHERE NOT EXISTS (SELECT FROM pg_attribute AS a
                    WHERE a.attrelid = to_regclass(t.name) AND a.attname = c.name AND NOT a.attisdropped)
 ORDER BY part;
