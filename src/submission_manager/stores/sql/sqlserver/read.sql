-- name: read
DECLARE @id nvarchar(400) = :id;
SELECT intent_id, submission_target, created_at, status, attempt_count, completed_at, final_outcome_reason, exhausted_reason
  FROM submission_intents WHERE intent_id = @id;
