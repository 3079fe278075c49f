-- name: owed
-- Ended intents whose receiver has not been told, those that ended first at the head.
SELECT intent_id, submission_target, created_at, status, attempt_count, completed_at, final_outcome_reason, exhausted_reason,
       webhook_url, CAST(webhook_headers AS text) AS webhook_headers, CAST(webhook_headers_env AS text) AS webhook_headers_env,
       webhook_secret_env
  FROM submission_intents
 WHERE webhook_status = 'pending' AND completed_at IS NOT NULL
 ORDER BY completed_at
 LIMIT :limit;
