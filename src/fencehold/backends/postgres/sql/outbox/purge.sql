-- name: purge
-- Only finished events; a dead letter only when it is named. Nobody can be given them again, so who met them is
-- forgotten too.
WITH chosen AS MATERIALIZED (
    SELECT tracking_id FROM fencehold_outbox
     WHERE status IN ('COMPLETED', 'DEAD_LETTER') AND status = ANY (coalesce(:statuses::text[], ARRAY['COMPLETED']))
       AND (:types::text[] IS NULL OR event_type = ANY (:types::text[]))
       AND (:tracking_ids::uuid[] IS NULL OR tracking_id = ANY (:tracking_ids::uuid[]))
       AND (:older_than::float8 IS NULL
            OR coalesce(processed_at, created_at) < clock_timestamp() - :older_than * interval '1 second')
     LIMIT :limit FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM fencehold_outbox AS o USING chosen AS c WHERE o.tracking_id = c.tracking_id RETURNING o.tracking_id
), forgotten AS (
    DELETE FROM fencehold_outbox_consumed AS m USING gone AS g WHERE m.tracking_id = g.tracking_id
)
SELECT count(*) FROM gone;
