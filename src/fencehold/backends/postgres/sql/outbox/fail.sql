-- name: fail
-- rules: PROCESSING.fail.may_retry PROCESSING.fail.is_spent
-- coalesce keeps the planner from seeking each key among all PROCESSING rows instead of by its id.
UPDATE fencehold_outbox AS o
   SET status = CASE WHEN a.retry AND o.retry_count + 1 < o.max_retries THEN 'FAILED' ELSE 'DEAD_LETTER' END,
       due_at = CASE WHEN a.retry AND o.retry_count + 1 < o.max_retries
                     THEN clock_timestamp() + a.delay_s * interval '1 second' ELSE o.due_at END,
       processed_at = CASE WHEN a.retry AND o.retry_count + 1 < o.max_retries THEN NULL ELSE clock_timestamp() END,
       retry_count = o.retry_count + 1, recoveries = 0, last_error = a.error, locked_until = NULL, lock_token = NULL
  FROM unnest(:ids::uuid[], :tokens::text[], :errors::text[], :delays::float8[], :retries::boolean[])
       AS a(id, token, error, delay_s, retry)
 WHERE o.tracking_id = a.id AND o.lock_token = a.token
   AND coalesce(o.status, '') = 'PROCESSING' AND o.locked_until > clock_timestamp()
RETURNING o.id, a.token, o.status;
