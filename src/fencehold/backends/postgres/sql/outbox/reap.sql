-- name: reap
-- rules: PROCESSING.reap.lapsed_with_tries PROCESSING.reap.lapsed_and_spent
-- How long each was stuck is read before it is cleared. A recovery counts as a try, or an event that kills its worker
-- would come back for ever.
WITH lapsed AS MATERIALIZED (
    SELECT tracking_id, locked_until, lock_token FROM fencehold_outbox
     WHERE status = 'PROCESSING' AND locked_until <= statement_timestamp()
     ORDER BY locked_until LIMIT :limit FOR NO KEY UPDATE SKIP LOCKED
), recovered AS (
    UPDATE fencehold_outbox AS o
       SET status = CASE WHEN o.retry_count + 1 < o.max_retries THEN 'PENDING' ELSE 'DEAD_LETTER' END,
           due_at = CASE WHEN o.retry_count + 1 < o.max_retries THEN clock_timestamp() ELSE o.due_at END,
           processed_at = CASE WHEN o.retry_count + 1 < o.max_retries THEN NULL ELSE clock_timestamp() END,
           retry_count = o.retry_count + 1, recoveries = o.recoveries + 1, locked_until = NULL, lock_token = NULL,
           last_error = 'lease expired: ' || l.lock_token || ' held it until ' || l.locked_until
                        || ' and neither finished nor renewed (died, hung or was cut off)'
      FROM lapsed AS l
     WHERE o.tracking_id = l.tracking_id
    RETURNING o.id, o.tracking_id::text AS tracking_id, o.event_type, o.status, o.retry_count, o.priority,
              extract(epoch FROM clock_timestamp() - l.locked_until)::float8 AS stale_s, l.lock_token
), told AS (
    SELECT pg_notify('fencehold_outbox', 'added ' || string_agg(DISTINCT priority::text, ',')) FROM recovered
     WHERE status = 'PENDING' HAVING count(*) > 0
), ran AS (
    INSERT INTO fencehold_outbox_reaper AS r (ran_at, runs, recovered)
    VALUES (clock_timestamp(), 1, (SELECT count(*) FROM recovered))
    ON CONFLICT (one) DO UPDATE
       SET ran_at = excluded.ran_at, runs = r.runs + 1, recovered = r.recovered + excluded.recovered
)
SELECT id, tracking_id, event_type, status, retry_count, stale_s, lock_token
  FROM recovered, (SELECT count(*) FROM told) AS t;
