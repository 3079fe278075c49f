-- name: expire
-- rules: any.retry_is_past_deadline
-- Of these intents those past their deadline are over, each with a number of its own; `expire_unknown` has counted what
-- an earlier epoch left behind. A start of this epoch was never answered, so nobody has called the gateway for it.
UPDATE submission_intents
   SET status = 'exhausted', exhausted_reason = 'deadline_exceeded', attempt_count = attempt_count + found.unknown,
       next_attempt_at = NULL, completed_at = :now, attempt_started_at = NULL, attempt_epoch = NULL, attempt_holder = NULL,
       updated_at = :now, last_modified_at = :now, modified_seq = found.newest + found.place
  FROM (SELECT intent_id AS found_id, row_number() OVER (ORDER BY intent_id) AS place,
               CASE WHEN attempt_epoch IS NULL OR (attempt_epoch = :epoch AND attempt_holder = :holder) THEN 0 ELSE 1
               END AS unknown,
               (SELECT max(modified_seq) FROM submission_intents) AS newest
          FROM submission_intents
         WHERE intent_id IN (SELECT value FROM json_each(:ids)) AND status = 'pending' AND policy = 'deadline'
           AND strftime('%Y-%m-%dT%H:%M:%fZ', created_at, '+' || max_acceptance_seconds || ' seconds') <= :now) AS found
 WHERE intent_id = found.found_id
RETURNING intent_id, submission_target, created_at, status, attempt_count, completed_at, final_outcome_reason,
          exhausted_reason, webhook_url, CAST(webhook_headers AS text) AS webhook_headers,
          CAST(webhook_headers_env AS text) AS webhook_headers_env, webhook_secret_env;
