-- name: parts_missing
-- What the statements need and the database does not have: `table.column`, or `table` when all of it is missing.
SELECT DISTINCT replace(CASE WHEN to_regclass(t.name) IS NULL THEN t.name ELSE t.name || '.' || c.name END, '"', '') AS part
  FROM (VALUES ('fencehold_items', 'token leased_at expires_at lease_ms state_timestamp holder_id kind id state document'),
               ('fencehold_items_token', 'last_value')) AS t(name, columns)
 CROSS JOIN unnest(string_to_array(t.columns, ' ')) AS c(name)
 WHERE NOT EXISTS (SELECT FROM pg_attribute AS a
                    WHERE a.attrelid = to_regclass(t.name) AND a.attname = c.name AND NOT a.attisdropped)
 ORDER BY part;
