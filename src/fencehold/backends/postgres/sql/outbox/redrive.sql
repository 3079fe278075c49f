-- name: redrive
-- rules: DEAD_LETTER.redrive.always FAILED.redrive.always
-- The k-th becomes due after k * spread seconds: a thousand dead letters do not come back as one wave.
WITH chosen AS MATERIALIZED (
    SELECT id, tracking_id FROM fencehold_outbox
     WHERE status IN ('DEAD_LETTER', 'FAILED')
       AND (:statuses::text[] IS NULL OR status = ANY (:statuses::text[]))
       AND (:types::text[] IS NULL OR event_type = ANY (:types::text[]))
       AND (:tracking_ids::uuid[] IS NULL OR tracking_id = ANY (:tracking_ids::uuid[]))
       AND (:older_than::float8 IS NULL
            OR coalesce(processed_at, created_at) < clock_timestamp() - :older_than * interval '1 second')
     ORDER BY id LIMIT :limit FOR NO KEY UPDATE SKIP LOCKED
), placed AS (
    SELECT tracking_id, row_number() OVER (ORDER BY id) - 1 AS place FROM chosen
), revived AS (
    UPDATE fencehold_outbox AS o
       SET status = 'PENDING', due_at = clock_timestamp() + p.place * :spread * interval '1 second', retry_count = 0,
           recoveries = NULL, last_error = NULL, processed_at = NULL, root_cause = nullif(:root_cause, '')
      FROM placed AS p
     WHERE o.tracking_id = p.tracking_id AND NOT :dry_run
    RETURNING o.priority
), told AS (
    SELECT pg_notify('fencehold_outbox', 'added ' || string_agg(DISTINCT priority::text, ',')) FROM revived
    HAVING count(*) > 0
)
SELECT c.tracking_id::text FROM chosen AS c, (SELECT count(*) FROM told) AS t ORDER BY c.id;
