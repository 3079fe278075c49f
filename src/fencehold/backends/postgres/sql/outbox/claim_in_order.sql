-- name: claim_in_order
-- rules: PENDING.claim.is_due FAILED.claim.is_due
-- Of each aggregate only the oldest unfinished event, and none while another of it is held. Claims take turns (the
-- advisory lock ends with the statement's transaction), and the clock of each begins after the last: two that ran at
-- once could not see each other's.
WITH suspect AS MATERIALIZED (
    SELECT e.tracking_id FROM fencehold_outbox AS e
     WHERE e.status = 'PENDING' AND e.retry_count > 1 AND coalesce(e.recoveries, 2) > 1
       AND e.due_at <= statement_timestamp()
       AND (:types::text[] IS NULL OR e.event_type = ANY (:types::text[]))
       AND (e.aggregate_id IS NULL OR NOT EXISTS (
           SELECT FROM fencehold_outbox AS other
            WHERE other.aggregate_id = e.aggregate_id
              AND other.aggregate_type IS NOT DISTINCT FROM e.aggregate_type
              AND (other.status = 'PROCESSING' OR (other.status IN ('PENDING', 'FAILED') AND other.id < e.id))))
     ORDER BY e.due_at, e.id LIMIT :suspects FOR UPDATE SKIP LOCKED
), next AS MATERIALIZED (
    SELECT e.tracking_id, e.status = 'PENDING' AND e.retry_count > 0 AND coalesce(e.recoveries, 1) > 0 AS recovered
      FROM fencehold_outbox AS e
     WHERE e.status IN ('PENDING', 'FAILED') AND e.due_at <= statement_timestamp()
       AND (:types::text[] IS NULL OR e.event_type = ANY (:types::text[]))
       AND (e.aggregate_id IS NULL OR NOT EXISTS (
           SELECT FROM fencehold_outbox AS other
            WHERE other.aggregate_id = e.aggregate_id
              AND other.aggregate_type IS NOT DISTINCT FROM e.aggregate_type
              AND (other.status = 'PROCESSING' OR (other.status IN ('PENDING', 'FAILED') AND other.id < e.id))))
       AND (NOT :isolated OR e.status = 'FAILED' OR e.retry_count < 2 OR e.recoveries < 2)
     ORDER BY e.priority DESC, e.due_at, e.id LIMIT :limit - (SELECT count(*) FROM suspect) FOR UPDATE SKIP LOCKED
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
SELECT * FROM claimed;
