-- name: purgeable
-- What `purge` would delete; nothing is locked.
SELECT count(*) FROM fencehold_outbox
 WHERE status IN ('COMPLETED', 'DEAD_LETTER') AND status = ANY (coalesce(:statuses::text[], ARRAY['COMPLETED']))
   AND (:types::text[] IS NULL OR event_type = ANY (:types::text[]))
   AND (:tracking_ids::uuid[] IS NULL OR tracking_id = ANY (:tracking_ids::uuid[]))
   AND (:older_than::float8 IS NULL
        OR coalesce(processed_at, created_at) < clock_timestamp() - :older_than * interval '1 second');
