-- name: parts_missing
-- What the statements need and the database does not have: `table.column`, or `table` when all of it is missing. A login
-- does not see a table on which it has no right; one that could not make it anyway is not told that it is missing.
SELECT DISTINCT p.name + CASE WHEN OBJECT_ID(p.name) IS NULL THEN N'' ELSE N'.' + p.field END AS part
  FROM (VALUES (N'fencehold_outbox', N'id'), (N'fencehold_outbox', N'created_at'), (N'fencehold_outbox', N'due_at'),
               (N'fencehold_outbox', N'locked_until'), (N'fencehold_outbox', N'processed_at'),
               (N'fencehold_outbox', N'priority'), (N'fencehold_outbox', N'retry_count'),
               (N'fencehold_outbox', N'max_retries'), (N'fencehold_outbox', N'status'),
               (N'fencehold_outbox', N'lock_token'), (N'fencehold_outbox', N'last_error'),
               (N'fencehold_outbox', N'root_cause'), (N'fencehold_outbox', N'tracking_id'),
               (N'fencehold_outbox', N'event_type'), (N'fencehold_outbox', N'aggregate_type'),
               (N'fencehold_outbox', N'aggregate_id'), (N'fencehold_outbox', N'payload'),
               (N'fencehold_outbox', N'metadata'), (N'fencehold_outbox', N'recoveries'),
               (N'fencehold_outbox' + N'_reaper', N'one'),
               (N'fencehold_outbox' + N'_reaper', N'ran_at'), (N'fencehold_outbox' + N'_reaper', N'runs'),
               (N'fencehold_outbox' + N'_reaper', N'recovered'),
               (N'fencehold_outbox' + N'_consumed', N'tracking_id'),
               (N'fencehold_outbox' + N'_consumed', N'consumer_id'),
               (N'fencehold_outbox' + N'_consumed', N'processed_at'), (N'fencehold_outbox' + N'_identity', N'one'),
               (N'fencehold_outbox' + N'_identity', N'outbox_id')) AS p (name, field)
 WHERE (OBJECT_ID(p.name) IS NOT NULL AND COL_LENGTH(p.name, p.field) IS NULL)
    OR (OBJECT_ID(p.name) IS NULL AND HAS_PERMS_BY_NAME(DB_NAME(), N'DATABASE', N'CREATE TABLE') = 1)
 ORDER BY part;
