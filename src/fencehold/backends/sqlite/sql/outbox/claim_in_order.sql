-- name: claim_in_order
-- rules: PENDING.claim.is_due FAILED.claim.is_due
-- Of each aggregate only the oldest unfinished event, and none while another of it is held. Both questions repeat the
-- condition of the index, or SQLite would not use it.
WITH suspect AS MATERIALIZED (
    SELECT e.id FROM fencehold_outbox AS e
     WHERE e.status = 'PENDING' AND e.retry_count > 0 AND e.retry_count > 1 AND coalesce(e.recoveries, 2) > 1
       AND e.due_at <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
       AND (:types IS NULL OR e.event_type IN (SELECT value FROM json_each(:types)))
                 AND (e.aggregate_id IS NULL OR (
                      NOT EXISTS (SELECT 1 FROM fencehold_outbox AS older
                                   WHERE older.aggregate_id = e.aggregate_id
                                     AND older.aggregate_type IS e.aggregate_type
                                     AND older.status IN ('PENDING', 'FAILED', 'PROCESSING') AND older.id < e.id)
                      AND NOT EXISTS (SELECT 1 FROM fencehold_outbox AS held
                                       WHERE held.aggregate_id = e.aggregate_id
                                         AND held.aggregate_type IS e.aggregate_type
                                         AND held.status IN ('PENDING', 'FAILED', 'PROCESSING')
                                         AND held.status = 'PROCESSING')))
     ORDER BY e.due_at, e.id LIMIT :suspects)
UPDATE fencehold_outbox
   SET status = 'PROCESSING', lock_token = :token, locked_until = strftime('%Y-%m-%dT%H:%M:%fZ', 'now', :lease)
 WHERE id IN (SELECT id FROM suspect)
    OR id IN (SELECT e.id FROM fencehold_outbox AS e
               WHERE e.status IN ('PENDING', 'FAILED') AND e.due_at <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
                 AND (:types IS NULL OR e.event_type IN (SELECT value FROM json_each(:types)))
                 AND (e.aggregate_id IS NULL OR (
                      NOT EXISTS (SELECT 1 FROM fencehold_outbox AS older
                                   WHERE older.aggregate_id = e.aggregate_id
                                     AND older.aggregate_type IS e.aggregate_type
                                     AND older.status IN ('PENDING', 'FAILED', 'PROCESSING') AND older.id < e.id)
                      AND NOT EXISTS (SELECT 1 FROM fencehold_outbox AS held
                                       WHERE held.aggregate_id = e.aggregate_id
                                         AND held.aggregate_type IS e.aggregate_type
                                         AND held.status IN ('PENDING', 'FAILED', 'PROCESSING')
                                         AND held.status = 'PROCESSING')))
                 AND (NOT :isolated OR e.status = 'FAILED' OR e.retry_count < 2 OR e.recoveries < 2)
               ORDER BY e.priority DESC, e.due_at, e.id LIMIT :limit - (SELECT count(*) FROM suspect))
RETURNING id, tracking_id, event_type, payload, locked_until, retry_count, max_retries, aggregate_id, aggregate_type,
          metadata, priority, created_at, due_at,
          retry_count > 0 AND coalesce(recoveries, 1) > 0 AS recovered, recoveries;
