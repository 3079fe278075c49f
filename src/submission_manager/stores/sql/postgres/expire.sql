-- name: expire
-- rules: any.retry_is_past_deadline
-- Of these intents those past their deadline are over. A start that another epoch left behind is counted as an attempt
-- first; a start of this epoch was never answered, so nobody has called the gateway for it. What somebody else has
-- locked is passed over. The rows first, then the clock.
WITH found AS MATERIALIZED (
    SELECT intent_id, attempt_started_at, attempt_count AS attempts_before,
           CASE WHEN attempt_epoch IS NULL OR (attempt_epoch = :epoch AND attempt_holder = :holder) THEN 0 ELSE 1 END AS unknown
      FROM submission_intents
     WHERE intent_id = ANY (CAST(:ids AS text[])) AND status = 'pending' AND policy = 'deadline'
       AND created_at + make_interval(secs => max_acceptance_seconds) <= clock_timestamp()
     ORDER BY intent_id
       FOR NO KEY UPDATE SKIP LOCKED),
clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now FROM (SELECT count(*) FROM found) AS locked),
counted AS (
    INSERT INTO submission_attempts (intent_id, attempt_number, started_at, finished_at, error)
    SELECT found.intent_id, found.attempts_before + 1, found.attempt_started_at, clock.now, CAST(:error AS text)
      FROM found CROSS JOIN clock
     WHERE found.unknown = 1)
UPDATE submission_intents AS intents
   SET status = 'exhausted', exhausted_reason = 'deadline_exceeded', attempt_count = found.attempts_before + found.unknown,
       next_attempt_at = NULL, completed_at = clock.now, attempt_started_at = NULL, attempt_epoch = NULL, attempt_holder = NULL,
       updated_at = clock.now, last_modified_at = clock.now, modified_xid = pg_current_xact_id()
  FROM found CROSS JOIN clock
 WHERE intents.intent_id = found.intent_id AND intents.status = 'pending'
RETURNING intents.intent_id, submission_target, created_at, status, attempt_count, completed_at, final_outcome_reason,
          exhausted_reason, webhook_url, CAST(webhook_headers AS text), CAST(webhook_headers_env AS text), webhook_secret_env,
          found.unknown;
