-- name: find
SELECT id, tracking_id::text, event_type, aggregate_id, aggregate_type, payload::text, metadata::text, status, priority,
       created_at, due_at, processed_at, retry_count, max_retries, locked_until, lock_token, last_error, root_cause,
       extract(epoch FROM due_at - clock_timestamp())::float8 AS waits_s,
       extract(epoch FROM locked_until - clock_timestamp())::float8 AS held_s
  FROM fencehold_outbox
 WHERE (:statuses::text[] IS NULL OR status = ANY (:statuses::text[]))
   AND (:types::text[] IS NULL OR event_type = ANY (:types::text[]))
   AND (:tracking_ids::uuid[] IS NULL OR tracking_id = ANY (:tracking_ids::uuid[]))
   AND (:older_than::float8 IS NULL
        OR coalesce(processed_at, created_at) < clock_timestamp() - :older_than * interval '1 second')
 ORDER BY id DESC LIMIT :limit;
