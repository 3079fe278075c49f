-- name: turn
-- only: postgres, because elsewhere two statements cost no round trip.
-- rules: PROCESSING.complete.is_holder PENDING.claim.is_due FAILED.claim.is_due
-- coalesce keeps the planner from seeking each key among all PROCESSING rows instead of by its id.
-- Completes the last batch and claims the next. Each priority is searched from where the last claim ended (its floor):
-- finished rows that a long-lived snapshot keeps from being removed are not walked again. What lies before the floor is
-- the sweep's, and so are suspects (see `claim`). The last row says how many were completed and, unless all were, which.
-- `next` is materialised: an UPDATE with a LIMIT inside a plain subselect can claim more than the limit.
WITH done AS (
    UPDATE fencehold_outbox AS o
       SET status = 'COMPLETED', locked_until = NULL, processed_at = clock_timestamp()
      FROM unnest(:ids::uuid[], :tokens::text[]) AS a(id, token)
     WHERE o.tracking_id = a.id AND o.lock_token = a.token
       AND coalesce(o.status, '') = 'PROCESSING' AND o.locked_until > clock_timestamp()
    RETURNING o.tracking_id
), next AS MATERIALIZED (
    SELECT c.tracking_id, c.recovered
      FROM unnest(:levels::smallint[], :floors::timestamptz[], :floor_ids::bigint[]) AS l(priority, due_at, id)
     CROSS JOIN LATERAL (
           SELECT e.tracking_id, e.status = 'PENDING' AND e.retry_count > 0 AND coalesce(e.recoveries, 1) > 0 AS recovered
             FROM fencehold_outbox AS e
            WHERE e.status IN ('PENDING', 'FAILED') AND e.priority = l.priority
              AND (e.due_at, e.id) > (l.due_at, l.id) AND e.due_at <= statement_timestamp()
              AND (:types::text[] IS NULL OR e.event_type = ANY (:types::text[]))
              AND (NOT :isolated OR e.status = 'FAILED' OR e.retry_count < 2 OR e.recoveries < 2)
            ORDER BY e.priority DESC, e.due_at, e.id LIMIT :limit FOR UPDATE SKIP LOCKED) AS c
     LIMIT :limit
), claimed AS (
    UPDATE fencehold_outbox AS o
       SET status = 'PROCESSING', lock_token = :token, locked_until = clock_timestamp() + :lease * interval '1 second'
      FROM next AS n
     WHERE o.tracking_id = n.tracking_id
    RETURNING o.id, o.tracking_id::text, o.event_type, o.payload::text, o.locked_until, o.retry_count, o.max_retries,
              o.aggregate_id, o.aggregate_type, o.metadata::text, o.priority, o.created_at, o.due_at,
              n.recovered, o.recoveries
)
SELECT * FROM claimed
UNION ALL
SELECT (SELECT count(*) FROM done),
       (SELECT string_agg(tracking_id::text, ',') FROM done WHERE (SELECT count(*) FROM done) < :asked),
       NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL;
