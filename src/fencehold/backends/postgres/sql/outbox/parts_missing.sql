-- name: parts_missing
-- What the statements need and the database does not have: `table.column`, or `table` when all of it is missing.
SELECT DISTINCT replace(CASE WHEN to_regclass(t.name) IS NULL THEN t.name ELSE t.name || '.' || c.name END, '"', '') AS part
  FROM (VALUES ('fencehold_outbox', 'id created_at due_at locked_until processed_at priority retry_count max_retries status '
                                    'lock_token last_error root_cause tracking_id event_type aggregate_type aggregate_id '
                                    'payload metadata recoveries'),
               ('fencehold_outbox_reaper', 'one ran_at runs recovered'),
               ('fencehold_outbox_consumed', 'tracking_id consumer_id processed_at'),
               ('fencehold_outbox_identity', 'one outbox_id')) AS t(name, columns)
 CROSS JOIN unnest(string_to_array(t.columns, ' ')) AS c(name)
 WHERE NOT EXISTS (SELECT FROM pg_attribute AS a
                    WHERE a.attrelid = to_regclass(t.name) AND a.attname = c.name AND NOT a.attisdropped)
 ORDER BY part;
