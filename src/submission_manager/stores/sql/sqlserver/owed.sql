-- name: owed
-- Ended intents whose receiver has not been told, those that ended first at the head.
DECLARE @limit int = :limit;
SELECT TOP (@limit) intent_id, submission_target, created_at, status, attempt_count, completed_at, final_outcome_reason,
       exhausted_reason, webhook_url, webhook_headers, webhook_headers_env, webhook_secret_env
  FROM submission_intents
 WHERE webhook_status = N'pending' AND completed_at IS NOT NULL
 ORDER BY completed_at;
