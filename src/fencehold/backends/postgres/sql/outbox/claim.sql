-- name: claim
-- rules: PENDING.claim.is_due FAILED.claim.is_due
-- The sweep: every priority there is, each from its beginning. Priorities are found by jumping from one to the next;
-- the last row names them all. A suspect was recovered twice in a row: a worker has one at a time.
WITH RECURSIVE level(priority) AS (
    (SELECT e.priority FROM fencehold_outbox AS e
      WHERE e.status IN ('PENDING', 'FAILED') ORDER BY e.priority DESC, e.due_at, e.id LIMIT 1)
    UNION ALL
    SELECT (SELECT e.priority FROM fencehold_outbox AS e
             WHERE e.status IN ('PENDING', 'FAILED') AND e.priority < level.priority
             ORDER BY e.priority DESC, e.due_at, e.id LIMIT 1)
      FROM level WHERE level.priority IS NOT NULL
), suspect AS MATERIALIZED (
    SELECT e.tracking_id FROM fencehold_outbox AS e
     WHERE e.status = 'PENDING' AND e.retry_count > 1 AND coalesce(e.recoveries, 2) > 1
       AND e.due_at <= statement_timestamp()
       AND (:types::text[] IS NULL OR e.event_type = ANY (:types::text[]))
     ORDER BY e.due_at, e.id LIMIT :suspects FOR UPDATE SKIP LOCKED
), next AS MATERIALIZED (
    SELECT c.tracking_id, c.recovered
      FROM level AS l
     CROSS JOIN LATERAL (
           SELECT e.tracking_id, e.status = 'PENDING' AND e.retry_count > 0 AND coalesce(e.recoveries, 1) > 0 AS recovered
             FROM fencehold_outbox AS e
            WHERE e.status IN ('PENDING', 'FAILED') AND e.priority = l.priority AND e.due_at <= statement_timestamp()
              AND (:types::text[] IS NULL OR e.event_type = ANY (:types::text[]))
              AND (NOT :isolated OR e.status = 'FAILED' OR e.retry_count < 2 OR e.recoveries < 2)
            ORDER BY e.priority DESC, e.due_at, e.id LIMIT :limit FOR UPDATE SKIP LOCKED) AS c
     LIMIT :limit - (SELECT count(*) FROM suspect)
), claimed AS (
    UPDATE fencehold_outbox AS o
       SET status = 'PROCESSING', lock_token = :token, locked_until = clock_timestamp() + :lease * interval '1 second'
      FROM (SELECT tracking_id, true AS recovered FROM suspect
            UNION ALL SELECT tracking_id, recovered FROM next) AS n
     WHERE o.tracking_id = n.tracking_id
    RETURNING o.id, o.tracking_id::text, o.event_type, o.payload::text, o.locked_until, o.retry_count, o.max_retries,
              o.aggregate_id, o.aggregate_type, o.metadata::text, o.priority, o.created_at, o.due_at,
              n.recovered, o.recoveries
)
SELECT * FROM claimed
UNION ALL
SELECT NULL, (SELECT string_agg(priority::text, ',') FROM level), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       NULL, NULL, NULL, NULL;
