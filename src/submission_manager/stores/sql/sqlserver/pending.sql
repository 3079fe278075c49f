-- name: pending
-- One page of what is to be done, each row with the clock.
DECLARE @after_at datetime2(7) = :after_at, @after_id nvarchar(400) = :after_id, @limit int = :limit;
SELECT TOP (@limit) intent_id, next_attempt_at, last_modified_at, gateway_url, submission_target, created_at,
       CASE WHEN policy = N'deadline' THEN max_acceptance_seconds END AS deadline_s, SYSUTCDATETIME() AS now,
       CONVERT(nvarchar(27), next_attempt_at, 126) AS place
  FROM submission_intents
 WHERE next_attempt_at IS NOT NULL AND next_attempt_at >= @after_at AND (next_attempt_at > @after_at OR intent_id > @after_id)
 ORDER BY next_attempt_at, intent_id;
