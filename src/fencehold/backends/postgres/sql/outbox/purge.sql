-- name: purge
-- Only finished events; a dead letter only when it is named.
WITH chosen AS MATERIALIZED (
    SELECT tracking_id FROM fencehold_outbox
     WHERE status IN ('COMPLETED', 'DEAD_LETTER') AND status = ANY (coalesce(:statuses::text[], ARRAY['COMPLETED']))
       AND (:types::text[] IS NULL OR event_type = ANY (:types::text[]))
       AND (:tracking_ids::uuid[] IS NULL OR tracking_id = ANY (:tracking_ids::uuid[]))
       AND (:older_than::float8 IS NULL
            OR coalesce(processed_at, created_at) < clock_timestamp() - :older_than * interval '1 second')
     LIMIT :limit FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM fencehold_outbox AS o USING chosen AS c WHERE o.tracking_id = c.tracking_id AND NOT :dry_run RETURNING 1
)
SELECT count(*) + 0 * (SELECT count(*) FROM gone) FROM chosen;
