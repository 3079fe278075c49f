-- name: reap
-- rules: PROCESSING.reap.lapsed_with_tries PROCESSING.reap.lapsed_and_spent
-- Of those that `lapsed` found in this transaction. A recovery counts as a try, or an event that kills its worker would
-- come back for ever.
UPDATE fencehold_outbox
   SET status = CASE WHEN retry_count + 1 < max_retries THEN 'PENDING' ELSE 'DEAD_LETTER' END,
       due_at = CASE WHEN retry_count + 1 < max_retries THEN strftime('%Y-%m-%dT%H:%M:%fZ', 'now') ELSE due_at END,
       processed_at = CASE WHEN retry_count + 1 < max_retries
                           THEN processed_at ELSE strftime('%Y-%m-%dT%H:%M:%fZ', 'now') END,
       last_error = 'lease expired: ' || lock_token || ' held it until ' || locked_until
                    || ' and neither finished nor renewed (died, hung or was cut off)',
       retry_count = retry_count + 1, recoveries = recoveries + 1, locked_until = NULL, lock_token = NULL
 WHERE id IN (SELECT value FROM json_each(:ids)) AND status = 'PROCESSING'
RETURNING id, tracking_id, event_type, status, retry_count;
