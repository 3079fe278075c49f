-- name: find
SELECT id, tracking_id, event_type, aggregate_id, aggregate_type, payload, metadata, status, priority, created_at,
       due_at, processed_at, retry_count, max_retries, locked_until, lock_token, last_error, root_cause,
       strftime('%Y-%m-%dT%H:%M:%fZ', 'now') AS now
  FROM fencehold_outbox
 WHERE (:statuses IS NULL OR status IN (SELECT value FROM json_each(:statuses)))
   AND (:types IS NULL OR event_type IN (SELECT value FROM json_each(:types)))
   AND (:tracking_ids IS NULL OR tracking_id IN (SELECT value FROM json_each(:tracking_ids)))
   AND (:older_than IS NULL
        OR coalesce(processed_at, created_at) < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', :older_than))
 ORDER BY id DESC LIMIT :limit;
