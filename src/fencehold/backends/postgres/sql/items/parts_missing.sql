-- name: parts_missing
-- What the statements need and the database does not have: `table.column`, or `table` when all of it is missing.
SELECT DISTINCT replace(CASE WHEN to_regclass(t.name) IS NULL THEN t.name ELSE t.name || '.' || c.name END, '"', '') AS part
  FROM (VALUES ('fencehold_items', 'token leased_at expires_at lease_ms state_timestamp holder_id kind id state document'),
               ('fencehold_items_token', 'last_value'),
               ('fencehold_items_place', 'one timeline system_identifier floor')) AS t(name, columns)
 CROSS JOIN unnest(string_to_array(t.columns, ' ')) AS c(name)
 WHERE NOT EXISTS (SELECT FROM pg_attribute AS a
                    WHERE a.attrelid = to_regclass(t.name) AND a.attname = c.name AND NOT a.attisdropped)
UNION ALL
-- Of pg_trigger.tgtype 1 is a row's, 2 before, 16 an update; O and A fire in every session but a replica's.
SELECT 'trigger ' || replace('fencehold_items_token_lifted', '"', '')
 WHERE to_regclass('fencehold_items_place') IS NOT NULL
   AND NOT EXISTS (SELECT FROM pg_trigger AS t JOIN pg_proc AS p ON p.oid = t.tgfoid
                    WHERE t.tgrelid = to_regclass('fencehold_items') AND t.tgenabled IN ('O', 'A')
                      AND t.tgtype & 19 = 19 AND position('floor' IN p.prosrc) > 0)
 ORDER BY part;
