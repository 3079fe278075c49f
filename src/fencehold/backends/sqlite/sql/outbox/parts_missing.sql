-- name: parts_missing
-- What the statements need and the file does not have: `table.column`, or `table` when all of it is missing.
SELECT DISTINCT t.name || CASE WHEN EXISTS (SELECT 1 FROM pragma_table_info(t.name)) THEN '.' || c.value ELSE '' END AS part
  FROM (SELECT 'fencehold_outbox' AS name,
               '["id", "tracking_id", "event_type", "aggregate_type", "aggregate_id", "status", "priority", "created_at",
                 "due_at", "processed_at", "retry_count", "max_retries", "locked_until", "lock_token", "last_error",
                 "root_cause", "metadata", "payload", "recoveries"]' AS columns
         UNION ALL
        SELECT 'fencehold_outbox' || '_reaper', '["one", "ran_at", "runs", "recovered"]'
         UNION ALL
        SELECT 'fencehold_outbox' || '_consumed', '["tracking_id", "consumer_id", "processed_at"]') AS t,
       json_each(t.columns) AS c
 WHERE c.value NOT IN (SELECT p.name FROM pragma_table_info(t.name) AS p)
 ORDER BY part;
